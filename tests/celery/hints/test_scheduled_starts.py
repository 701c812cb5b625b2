"""One run for each tick of a schedule, however many beats send it, however late and however often."""

from __future__ import annotations

import logging
import pickle
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from celery.beat import Scheduler
from celery.schedules import crontab, schedule

from flow_app import beat, workflow
from flow_app.beat.nominal import nominal_tick
from flow_app.errors import ConfigurationError, InvalidRunIdError
from flow_app.models import RunLabel
from project.celery import app as project_app

BERLIN = ZoneInfo("Europe/Berlin")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# --- the tick a message means ---------------------------------------------------------------------------------------

TICKS = [
    # when, the message arrives, the tick it means
    (60, "2026-03-01 12:00:00", "2026-03-01 12:00"),
    (60, "2026-03-01 12:00:29.9", "2026-03-01 12:00"),
    (60, "2026-03-01 11:59:30.1", "2026-03-01 12:00"),  # the beat's clock is ahead
    (3600, "2026-03-01 12:59:00", "2026-03-01 12:00"),  # half an hour in a queue
    (10, "2026-03-01 12:00:04", "2026-03-01 12:00"),
    (10, "2026-03-01 12:00:06", "2026-03-01 12:00:10"),
    (1, "2026-03-01 12:00:00.4", "2026-03-01 12:00"),
    ("0 3 * * *", "2026-03-01 03:00:00", "2026-03-01 03:00"),
    ("0 3 * * *", "2026-03-01 02:59:45", "2026-03-01 03:00"),  # the beat's clock is ahead
    ("0 3 * * *", "2026-03-01 02:59:00", "2026-02-28 03:00"),
    ("0 3 * * *", "2026-03-02 02:00:00", "2026-03-01 03:00"),  # beat was down all day
    ("0 3 * * 1", "2026-03-04 12:00:00", "2026-03-02 03:00"),  # a Monday
    ("0 3 * * 0", "2026-03-04 12:00:00", "2026-03-01 03:00"),  # a Sunday
    ("30 4 1,15 * *", "2026-03-14 00:00:00", "2026-03-01 04:30"),
    ("0 0 29 2 *", "2026-03-14 00:00:00", "2024-02-29 00:00"),
    ("*/20 8-10 * * mon-fri", "2026-03-04 11:30:00", "2026-03-04 10:40"),
    ("  0   3 * *  * ", "2026-03-01 03:00:00", "2026-03-01 03:00"),
]


@pytest.mark.parametrize(("when", "at", "tick"), TICKS)
def test_the_nominal_tick(when, at, tick):
    assert nominal_tick(when, at=utc(at), zone=UTC) == utc(tick)


CLOCK_CHANGES = [
    # in Europe/Berlin; the instants in UTC
    ("30 1 * * *", "2026-03-29 04:00", "2026-03-29 00:30"),
    ("30 2 * * *", "2026-03-29 04:00", "2026-03-29 01:30"),  # 02:30 does not exist: an hour after 01:30
    ("30 2 * * *", "2026-10-25 00:40", "2026-10-25 00:30"),  # the first 02:30
    ("30 2 * * *", "2026-10-25 01:40", "2026-10-25 00:30"),  # the second is the same tick
    ("30 1 * * *", "2026-10-25 04:00", "2026-10-24 23:30"),
    ("*/15 * * * *", "2026-10-25 00:50", "2026-10-25 00:45"),
    ("*/15 * * * *", "2026-10-25 01:20", "2026-10-25 01:15"),  # what comes every hour comes in the repeated one too
    ("0 * * * *", "2026-03-29 01:10", "2026-03-29 01:00"),
    (3600, "2026-10-25 01:10", "2026-10-25 01:00"),
]


@pytest.mark.parametrize(("when", "at", "tick"), CLOCK_CHANGES)
def test_field_report_46c_when_clocks_change(when, at, tick):
    assert nominal_tick(when, at=utc(at), zone=BERLIN) == utc(tick)


@pytest.mark.parametrize("when", ["* * * *", "61 * * * *", "daily", "", 0, -1, 1.5, True, None, "0 0 30 2 *"])
def test_what_is_no_schedule_is_refused(when):
    with pytest.raises(ConfigurationError):
        nominal_tick(when, at=utc("2026-03-01"), zone=UTC)


# --- entries --------------------------------------------------------------------------------------------------------


def test_an_entry_is_what_beat_takes_and_its_message_is_json():
    (entry,) = beat.start("nightly", "report", crontab(hour=3, minute=0), input={"days": 1}).values()
    assert entry == {
        "task": "flow_app.start_run",
        "schedule": crontab(hour=3, minute=0),
        "kwargs": {"name": "nightly", "workflow": "report", "input": {"days": 1}, "when": "0 3 * * *"},
        "options": {},
    }


@pytest.mark.parametrize("every", [600, 600.0, timedelta(minutes=10)])
def test_an_interval_lies_on_a_grid_that_all_beats_share(every):
    (entry,) = beat.start("often", "report", every).values()
    plan = entry["schedule"]
    assert (entry["kwargs"]["when"], entry["options"]) == (600, {"expires": 600})
    plan.nowfun = lambda: utc("2026-03-01 12:03:20")
    assert plan.is_due(utc("2026-03-01 12:01:00")) == (False, 400)
    assert plan.is_due(utc("2026-03-01 11:59:00")) == (True, 400)  # late: the next one is on the grid again
    assert plan.is_due(utc("2026-02-01 11:59:00")) == (True, 400)


def test_an_entry_survives_the_file_in_which_beat_keeps_it():
    entries = {**beat.schedule(), **beat.start("a", "w", 60), **beat.start("b", "w", "0 3 * * *")}
    assert pickle.loads(pickle.dumps(entries)) == entries


@pytest.mark.parametrize("name", ["no spaces", "", "x" * 128])
def test_a_name_must_be_the_beginning_of_a_run_id(name):
    with pytest.raises(InvalidRunIdError):
        beat.start(name, "report", 60)


@pytest.mark.parametrize("when", [0, -5, 0.5, 1.5, True, None, timedelta(milliseconds=1500), schedule(60)])
def test_a_schedule_that_has_no_nominal_ticks_is_refused(when):
    with pytest.raises(ConfigurationError):
        beat.start("x", "report", when)


@pytest.mark.parametrize("every", [0, -1, None, "5", True])
def test_a_tick_needs_an_interval(every):
    with pytest.raises(ConfigurationError):
        beat.schedule(every=every)


# --- messages -------------------------------------------------------------------------------------------------------


@pytest.fixture
def at(engine, monkeypatch):
    """Set the engine's clock: ``at("2026-03-01 03:00")``."""
    workflow("report")(lambda ctx: ctx.complete(ctx.input))
    return lambda text: monkeypatch.setattr(type(engine.store.clock), "now", lambda clock: utc(text))


def start_message(entry):
    project_app.tasks[entry["task"]](**entry["kwargs"])


@pytest.fixture
def nightly():
    (entry,) = beat.start("nightly", "report", "0 3 * * *", input={"days": 1}).values()
    return entry


def test_two_beats_start_one_run(engine, at, nightly, post):
    at("2026-03-01 02:59:58")  # the clock of one beat is ahead
    start_message(nightly)
    at("2026-03-01 03:00:01")
    start_message(nightly)
    assert engine.list_run_ids() == ["nightly:20260301T030000Z"]
    post.deliver_all()
    assert engine.snapshot("nightly:20260301T030000Z").output == {"days": 1}
    at("2026-03-02 03:00:00")
    start_message(nightly)
    assert engine.list_run_ids() == ["nightly:20260301T030000Z", "nightly:20260302T030000Z"]


def test_field_report_25_a_backlog_starts_one_run(engine, at):
    """78 minutes without a worker, a start each 10 seconds: 468 messages, and then a worker."""
    (entry,) = beat.start("often", "report", 10).values()
    at("2026-03-01 12:00:00")
    start_message(entry)
    at("2026-03-01 13:18:01")
    for _ in range(468):
        start_message(entry)
    assert engine.list_run_ids() == ["often:20260301T120000Z", "often:20260301T131800Z"]


def test_a_tick_that_beat_missed_is_made_up_for_once(engine, at, nightly):
    at("2026-03-01 09:20:00")  # beat comes back and sends at once what was due
    start_message(nightly)
    start_message(nightly)
    assert engine.list_run_ids() == ["nightly:20260301T030000Z"]


def test_a_run_of_a_schedule_can_be_found_by_it(engine, at, nightly):
    at("2026-03-01 03:00:00")
    start_message(nightly)
    (label,) = RunLabel.objects.all()
    assert (label.name, label.value) == ("schedule", "nightly")


def test_another_input_for_the_same_tick_is_said_and_the_run_that_stands_goes_on(engine, at, nightly, caplog):
    at("2026-03-01 03:00:00")
    start_message(nightly)
    with caplog.at_level(logging.WARNING, "flow_app.tasks"):
        start_message({**nightly, "kwargs": {**nightly["kwargs"], "input": {"days": 7}}})
    assert "its input differs" in caplog.text
    assert engine.list_run_ids() == ["nightly:20260301T030000Z"]


def test_without_a_schedule_the_message_s_own_id_makes_its_repetition_harmless(engine, at, post):
    at("2026-03-01 03:00:00")
    start = project_app.tasks["flow_app.start_run"]
    start.apply_async(("report",), {"input": 1})
    (sent,) = post.take()
    for _ in range(2):
        post.deliver(sent)
    assert engine.list_run_ids() == [sent.headers["id"]]


def test_a_run_id_may_be_given(engine, at):
    at("2026-03-01 03:00:00")
    for _ in range(2):
        project_app.tasks["flow_app.start_run"]("report", 1, run_id="order:7")
    assert engine.list_run_ids() == ["order:7"]


@pytest.mark.parametrize("kwargs", [{"when": "whenever"}, {"when": 60}], ids=["a bad schedule", "an unknown workflow"])
def test_a_start_that_cannot_be_is_logged_and_not_sent_again(engine, kwargs, caplog):
    with caplog.at_level(logging.WARNING, "flow_app.tasks"):
        project_app.tasks["flow_app.start_run"]("nowhere", name="x", **kwargs)
    assert "flow_app.start_run" in caplog.text
    assert engine.list_run_ids() == []


# --- Celery's own beat ----------------------------------------------------------------------------------------------


class Beat:
    """A beat process, whose clock the test sets."""

    def __init__(self, entries, *, last_run_at):
        scheduler = Scheduler(project_app, lazy=True)
        scheduler.merge_inplace(entries)
        for entry in scheduler.schedule.values():
            entry.last_run_at = utc(last_run_at)
        self._scheduler = scheduler

    def turn(self, now):
        """Send what is due."""
        for entry in self._scheduler.schedule.values():
            entry.schedule.nowfun = lambda: utc(now)
        self._scheduler._heap = None
        for name, entry in list(self._scheduler.schedule.items()):
            if entry.is_due()[0]:
                self._scheduler.apply_entry(entry, producer=self._scheduler.producer)
                self._scheduler.schedule[name].last_run_at = utc(now)


def test_beats_that_were_started_at_different_times_send_for_the_same_ticks(engine, at, post):
    entries = lambda: beat.start("often", "report", 300)  # noqa: E731 - each beat has its own
    first, second = (
        Beat(entries(), last_run_at="2026-03-01 12:01:40"),
        Beat(entries(), last_run_at="2026-03-01 12:03:20"),
    )
    for now in ("2026-03-01 12:04:59", "2026-03-01 12:05:00", "2026-03-01 12:05:02", "2026-03-01 12:10:01"):
        at(now)
        for each in (first, second):
            each.turn(now)
        for sent in post.take():
            if sent.task == "flow_app.start_run":
                post.deliver(sent)
    assert engine.list_run_ids() == ["often:20260301T120500Z", "often:20260301T121000Z"]


def test_a_beat_that_was_away_for_an_hour_sends_one_start_and_one_tick(engine, at, post):
    entries = {**beat.schedule(), **beat.start("often", "report", 300)}
    late = Beat(entries, last_run_at="2026-03-01 12:00:00")
    late.turn("2026-03-01 13:02:00")
    late.turn("2026-03-01 13:02:00.5")
    assert sorted(sent.task for sent in post.take()) == ["flow_app.start_run", "flow_app.tick"]


def test_ticks_that_no_worker_took_are_dropped_after_a_minute(engine, post):
    sender = Beat(beat.schedule(every=5), last_run_at="2026-03-01 12:00:00")
    before = datetime.now(UTC)
    sender.turn("2026-03-01 12:00:05")
    (sent,) = post.take()
    assert (sent.task, sent.args, sent.kwargs) == ("flow_app.tick", (), {})
    expires = datetime.fromisoformat(sent.headers["expires"])
    assert timedelta(seconds=59) < expires - before < timedelta(seconds=120)


def test_a_tick_dispatches_what_is_due(engine, post, overdue):
    workflow("plain")(lambda ctx: ctx.complete())
    run_id = engine.start("plain")
    post.take()  # lost
    overdue()
    project_app.tasks["flow_app.tick"]()
    assert [sent.args for sent in post.deliver_all()] == [(run_id,)]
    assert engine.snapshot(run_id).status == "completed"
