from __future__ import annotations

from datetime import UTC, datetime, timedelta

from flow_app.admin.picture import LANES, SPANS, draw
from flow_app.presenting.marks import Mark
from flow_app.presenting.timeline import SpanState, Timeline, timeline

START = datetime(2026, 3, 2, 10, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def story(*events: tuple) -> list[Mark]:
    """Marks of (seconds, type, name, more)."""
    return [
        Mark(number, kind, at(seconds), name, **(more[0] if more else {}))
        for number, (seconds, kind, name, *more) in enumerate(events, 1)
    ]


def states(found: Timeline, lane: int = 0) -> list[tuple[str, float, float | None]]:
    return [
        (span.state.value, (span.start - START).total_seconds(), span.end and (span.end - START).total_seconds())
        for span in found.lanes[lane].spans
    ]


def test_a_step_is_queued_runs_and_is_done():
    found = timeline(
        story((0, "step_created", "a"), (1, "step_started", "a", {"attempt": 1}), (3, "step_completed", "a"))
    )
    assert states(found) == [("queued", 0, 1), ("done", 1, 3)]


def test_each_attempt_is_a_span_of_its_own():
    found = timeline(
        story(
            (0, "step_created", "a"),
            (0, "step_started", "a", {"attempt": 1}),
            (1, "step_retrying", "a", {"attempt": 1, "note": "no", "until": at(5)}),
            (5, "step_started", "a", {"attempt": 2}),
            (6, "step_failed", "a", {"attempt": 2, "note": "never"}),
        )
    )
    assert states(found) == [("queued", 0, 0), ("failed", 0, 1), ("backoff", 1, 5), ("failed", 5, 6)]
    assert [span.note for span in found.lanes[0].spans] == ["", "no", "", "never"]
    assert found.lanes[0].attempts == 2
    assert found.lanes[0].spans[2].until == at(5)


def test_waits_and_hooks_are_spans_and_say_how_they_ended():
    found = timeline(
        story(
            (0, "wait_created", "nap"), (1, "hook_created", "h"), (2, "hook_received", "h", {"actor": "ada"}),
            (3, "hook_created", "x"), (4, "hook_expired", "x"), (5, "hook_created", "w"), (6, "hook_disposed", "w"),
        )
    )  # fmt: skip
    assert [(lane.kind, lane.name, lane.last.state) for lane in found.lanes] == [
        ("wait", "nap", SpanState.WAITING),
        ("hook", "h", SpanState.DONE),
        ("hook", "x", SpanState.EXPIRED),
        ("hook", "w", SpanState.WITHDRAWN),
    ]
    assert found.lanes[1].last.actor == "ada"
    assert found.lanes[0].last.end is None


def test_a_cancellation_closes_what_is_open_and_a_late_outcome_still_counts():
    found = timeline(
        story(
            (0, "step_created", "a"), (0, "step_started", "a", {"attempt": 1}), (0, "hook_created", "h"),
            (2, "run_cancellation_requested", ""), (3, "step_completed", "a"), (4, "run_cancelled", ""),
        )
    )  # fmt: skip
    assert states(found)[-1] == ("done", 0, 3)
    assert states(found, 1) == [("cancelled", 0, 2)]
    assert [mark.type for mark in found.milestones] == ["run_cancellation_requested", "run_cancelled"]


def test_a_step_a_wait_and_a_hook_of_one_name_are_three_lanes():
    found = timeline(story((0, "step_created", "x"), (0, "wait_created", "x"), (0, "hook_created", "x")))
    assert [lane.kind for lane in found.lanes] == ["step", "wait", "hook"]


def test_a_history_may_begin_in_the_middle():
    found = timeline(story((5, "step_completed", "a"), (6, "hook_received", "h"), (7, "run_completed", "")))
    assert states(found) == [("done", 5, 5)]


# --- the picture ----------------------------------------------------------------------------------------------------


def steps(count: int) -> list[Mark]:
    """One step after the other, a second each."""
    events: list[tuple] = []
    for n in range(count):
        events += [(n, "step_started", f"s{n}", {"attempt": 1}), (n + 1, "step_completed", f"s{n}")]
    return story(*events)


def test_nothing_is_no_picture():
    assert draw(timeline([]), now=at(0)) is None


def test_three_items_fill_the_width_and_three_thousand_are_paged():
    few = draw(timeline(steps(3)), now=at(3))
    assert (few.pages, len(few.rows)) == (1, 3)
    many = draw(timeline(steps(3000)), now=at(3000))
    assert (many.page, many.pages, many.total, len(many.rows)) == (75, 75, 3000, LANES)
    first = draw(timeline(steps(3000)), now=at(3000), page=1)
    for picture in (few, many, first):
        left = min(float(bar.x) for row in picture.rows for bar in row.bars)
        right = max(float(bar.x) + float(bar.width) for row in picture.rows for bar in row.bars)
        assert (left, right) == (picture.left, picture.right)


def test_what_is_short_can_still_be_seen_and_stays_inside():
    marks = story(
        (0, "wait_created", "long"), (86_400, "wait_completed", "long"),
        (86_400, "step_started", "s", {"attempt": 1}), (86_400.001, "step_completed", "s"),
    )  # fmt: skip
    picture = draw(timeline(marks), now=at(90_000))
    (bar,) = picture.rows[1].bars
    assert float(bar.width) >= 3
    assert float(bar.x) + float(bar.width) <= picture.right


def test_what_lasts_goes_on_until_now():
    picture = draw(timeline(story((0, "hook_created", "h"))), now=at(10))
    (bar,) = picture.rows[0].bars
    assert float(bar.x) + float(bar.width) == picture.right
    assert "for 10 s" in bar.title


def test_a_lane_of_a_thousand_attempts_is_bounded():
    events = [("step_created", {})]
    for attempt in range(1, 1001):
        events += [("step_started", {"attempt": attempt}), ("step_retrying", {"attempt": attempt})]
    marks = story(*[(n, kind, "s", more) for n, (kind, more) in enumerate(events)])
    (row,) = draw(timeline(marks), now=at(5000)).rows
    assert len(row.bars) <= SPANS
    assert "×1000" in row.note
    assert len(row.told) == len(row.bars)


def test_words_tell_of_spans_in_the_order_of_time():
    marks = story(
        (0, "step_created", "s"), (1, "step_started", "s", {"attempt": 1}),
        (2, "step_retrying", "s", {"attempt": 1, "note": "Traceback\n  ...\nOSError: gone"}),
        (5, "step_started", "s", {"attempt": 2}), (6, "step_completed", "s"),
    )  # fmt: skip
    (row,) = draw(timeline(marks), now=at(10)).rows
    assert [told.split(", ")[:2] for told in row.told] == [
        ["queued", "from 10:00"],
        ["failed", "attempt 1"],
        ["waiting to be tried again", "from 10:00"],
        ["done", "attempt 2"],
    ]
    assert row.told[1].endswith(", OSError: gone")
    assert all("Traceback" not in told for told in row.told)


def test_the_end_of_the_run_is_marked_on_the_last_page():
    marks = [*steps(100), Mark(999, "run_failed", at(101), note="why", actor="ada")]
    last, first = draw(timeline(marks), now=at(200)), draw(timeline(marks), now=at(200), page=1)
    (line,) = last.milestones
    assert (line.text, line.tone) == ("✗", "bad")
    assert "why" in line.title
    assert "ada" in line.title
    assert line.told.startswith("run failed, ")
    assert line.told.endswith("by ada, why")
    assert first.milestones == []


def test_a_clock_that_went_back_breaks_nothing():
    marks = story((5, "step_started", "a", {"attempt": 1}), (3, "step_completed", "a"))
    assert draw(timeline(marks), now=at(1)).rows[0].bars
