from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone, translation

from flow_app.models import Run
from flow_app.presenting import badges, excerpt, headline, lasting, mask_token, redact, when, why
from flow_app.presenting.payloads import HIDDEN
from flow_app.presenting.sentences import first_line

NOW = datetime(2026, 3, 4, 12, tzinfo=UTC)  # a Wednesday


def run(**columns) -> Run:
    return Run(**{"run_id": "r", "status": "running", "wake_reason": "runnable", "created_at": NOW, **columns})


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (NOW, "12:00"),
        (NOW - timedelta(hours=11), "01:00"),
        (NOW - timedelta(days=1, minutes=1), "Tuesday 11:59"),
        (NOW + timedelta(days=2), "Friday 12:00"),
        (NOW + timedelta(days=30), "April 3, 2026, 12:00"),
    ],
)
def test_when(at, text):
    assert when(at, now=NOW) == text


def test_when_is_in_the_readers_zone_and_language():
    with timezone.override("Europe/Berlin"), translation.override("de"):
        assert when(NOW + timedelta(days=2), now=NOW).endswith("13:00")
        assert when(NOW + timedelta(days=2), now=NOW).startswith("Freitag")


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(), "0 ms"),
        (timedelta(seconds=-5), "0 ms"),
        (timedelta(microseconds=300), "0.3 ms"),
        (timedelta(milliseconds=250), "250 ms"),
        (timedelta(seconds=3.42), "3.4 s"),
        (timedelta(seconds=320), "5 min 20 s"),
        (timedelta(hours=3, minutes=7), "3 h 7 min"),
        (timedelta(days=52, hours=5), "52 d 5 h"),
    ],
)
def test_lasting(length, text):
    assert lasting(length) == text


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"status": "completed", "finished_at": NOW}, "Completed 12:00, after 0 ms."),
        ({"status": "cancelled", "finished_at": NOW, "error": "too late"}, "Cancelled 12:00, after 0 ms: too late"),
        ({"status": "failed", "finished_at": NOW, "error": "a\nb"}, "Failed 12:00, after 0 ms: a"),
        ({"status": "failed", "outcome": "timed_out", "error": "e"}, "Timed out 12:00, after 0 ms: e"),
        ({"paused_at": NOW}, "Paused since 12:00."),
        ({"blocked_code": "c", "blocked_text": "t", "blocked_since": NOW}, "Blocked since 12:00 (c): t"),
        ({"wake_reason": "no_worker", "build": "b1"}, "No worker runs its build (b1)."),
        ({"wake_reason": "lost", "lost_leases": 3}, "Its workers died, 3 in a row."),
        ({"wake_reason": "dispatched", "dispatches": 4}, "Sent to the workers 4 times; none has taken it yet."),
        ({"steps_out": 2}, "2 steps are with the workers."),
        ({"lease_expires_at": NOW + timedelta(seconds=9)}, "A worker is running it."),
        ({}, "Waits for a worker."),
        ({"status": "cancelling"}, "Is being cancelled: the workflow cleans up."),
    ],
)
def test_headlines(columns, sentence):
    assert headline(run(**columns), None, now=NOW) == sentence


def test_why_names_a_scheduler_that_does_not_come():
    assert "is a scheduler running?" in why(run(wake_at=NOW - timedelta(hours=1)), None, now=NOW)
    assert "is a scheduler running?" not in why(run(wake_at=NOW), None, now=NOW)


def test_an_ended_run_is_neither_overdue_nor_blocked():
    ended = run(status="failed", blocked_code="x", wake_at=NOW - timedelta(days=1), paused_at=NOW)
    assert [badge.key for badge in badges(ended, now=NOW)] == ["failed"]


def test_a_traceback_is_told_by_its_last_line():
    assert first_line("Traceback (most recent call last):\n  File x\nValueError: no") == "ValueError: no"
    assert first_line("") == ""
    assert len(first_line("x" * 5000)) < 200


@pytest.mark.parametrize(
    "key", ["password", "API_KEY", "api-key", "access_token", "Authorization", "db.password", "secrets"]
)
def test_secrets_are_hidden(key):
    assert redact({key: "x", "deep": [{key: {"more": 1}}]}) == {key: HIDDEN, "deep": [{key: HIDDEN}]}


@pytest.mark.parametrize(
    "key", ["tokens_used_by", "monkey", "secretary", "author", "key", "passwords_changed_at", "broken", "keyboard"]
)
def test_what_only_sounds_like_a_secret_is_shown(key):
    assert redact({key: 1}) == {key: 1}


def test_excerpts_are_plain_and_bounded():
    assert excerpt('{"amount":{"$decimal":"1.10"}}').text == '{\n  "amount": "1.10"\n}'
    cut = excerpt('"' + "x" * 20_000 + '"')
    assert cut.is_cut
    assert len(cut.text) <= 10_000
    assert cut.size == 20_002
    assert excerpt("no json").text == "(not readable)"
    assert excerpt('"\\ud800\\u0000"').text.isprintable()


def test_a_token_is_told_by_the_beginning_of_its_digest():
    assert mask_token("sha256:" + "ab" * 32) == "abababab…"


@pytest.mark.parametrize(
    "name",
    ["password", "db_pwd", "userPassword", "accessToken", "clientSecret", "apiKey", "API_KEY", "X-Api-Key", "APIToken",
     "secret_key", "aws_secret_access_key", "privateKey", "Set-Cookie", "credentials", "jwt", "client secret"],
)  # fmt: skip
def test_what_is_named_like_a_secret_is_hidden(name):
    assert redact([{name: "hunter2"}]) == [{name: HIDDEN}]
