"""Double clicks and two approvers who meet: one decision, one event, one line in the log, and both hear the truth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client

from flow_app import get_engine
from flow_app.models import Run
from tests.admin.acts import pages
from tests.admin.acts.flows import hook_of, run_of, story
from tests.admin.acts.people import person
from tests.store.support import at_once

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

SERVER = 200
FILE = 40
PARTS = 4


def repeats(part: int) -> range:
    """A server database is met more often than SQLite, which lets one writer in at a time anyway."""
    return range(part, FILE if connection.vendor == "sqlite" else SERVER, PARTS)


@pytest.fixture
def ada() -> Client:
    return logged_in("ada")


@pytest.fixture
def bob() -> Client:
    return logged_in("bob")


def logged_in(name: str) -> Client:
    client = Client()
    client.force_login(person(name, "view_run", "view_hook", "resume_hook", "cancel_run", "start_run"))
    return client


def meet(*acts: Callable[[], Any]) -> list[Any]:
    """All at once; what each returned."""
    results = at_once(*acts)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def again(client: Client) -> Client:
    """The same user's second window: one test client is not for two threads."""
    other = Client()
    other.cookies = client.cookies.copy()
    return other


def heard(text: str, *parts: str) -> bool:
    return all(part in text for part in parts)


@pytest.mark.parametrize("part", range(PARTS))
def test_yes_meets_no(part: int, ada: Client, bob: Client) -> None:
    for index in repeats(part):
        hook = hook_of(run_of("asks", run_id=f"r{index}"))
        (yes,), (no,) = meet(lambda: pages.do(ada, hook, "approve"), lambda: pages.do(bob, hook, "reject"))  # noqa: B023
        answer = get_engine().snapshot(hook.run.run_id).output
        if answer == {"approved": True, "by": "ada"}:
            assert heard(yes, "Approved.")
            assert heard(no, "ada has approved it")
        else:
            assert answer == {"approved": False, "by": "bob"}
            assert heard(no, "Rejected.")
            assert heard(yes, "bob has rejected it")
        check_one_decision(hook.run)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_double_click(part: int, ada: Client) -> None:
    for index in repeats(part):
        hook = hook_of(run_of("asks", run_id=f"r{index}"))
        clicks = [lambda client=client: pages.do(client, hook, "approve")[0] for client in (ada, again(ada))]  # noqa: B023
        texts = sorted(meet(*clicks))
        assert heard(texts[0], "Approved.") != heard(texts[1], "Approved.")
        assert any(heard(text, "your answer stands") for text in texts)
        check_one_decision(hook.run)


@pytest.mark.parametrize("part", range(PARTS))
def test_an_answer_meets_a_cancellation(part: int, ada: Client, bob: Client) -> None:
    for index in repeats(part):
        run = run_of("asks", run_id=f"r{index}")
        hook = hook_of(run)
        (answer,), (cancelled,) = meet(lambda: pages.do(ada, hook, "approve"), lambda: pages.do(bob, run, "cancel"))  # noqa: B023
        types = story(run)
        assert types.count("run_completed") + types.count("run_cancelled") == 1
        assert heard(answer, "Approved.") == ("hook_received" in types)
        assert heard(cancelled, "Cancellation is requested.") == ("run_cancellation_requested" in types)
        if "hook_received" not in types:
            assert heard(answer, "cancelled with its run") or heard(answer, "has ended")


@pytest.mark.parametrize("part", range(PARTS))
def test_two_who_cancel(part: int, ada: Client, bob: Client) -> None:
    for index in repeats(part):
        run = run_of("asks", run_id=f"r{index}")
        texts = meet(lambda: pages.do(ada, run, "cancel")[0], lambda: pages.do(bob, run, "cancel")[0])  # noqa: B023
        assert sorted(heard(text, "Cancellation is requested.") for text in texts) == [False, True]
        assert story(run).count("run_cancellation_requested") == 1
        assert LogEntry.objects.filter(object_id=run.pk).count() == 1


def test_a_double_click_starts_one_run(ada: Client) -> None:
    for index in range(10):
        data = {"workflow": "asks", "run_id": f"r{index}", "input": "null"}
        clicks = [
            lambda client=client: client.post(pages.start(), data, follow=True)  # noqa: B023
            for client in (ada, again(ada))
        ]
        assert [response.status_code for response in meet(*clicks)] == [200, 200]
        run = Run.objects.get(run_id=f"r{index}")
        assert story(run).count("run_created") == 1
        assert LogEntry.objects.filter(object_id=run.pk).count() == 1


def check_one_decision(run: Run) -> None:
    assert story(run).count("hook_received") == 1
    assert story(run).count("run_completed") == 1
    assert LogEntry.objects.filter(object_id=run.pk).count() == 1
