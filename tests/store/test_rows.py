"""The contract of every store: hooks, progress and links, kept in the append's own commit."""

from __future__ import annotations

import pytest

from flow_app.core import tokens
from flow_app.core.events import HookDisposed, HookExpired, HookReceived, RunCancellationRequested
from flow_app.core.payload import Payload
from flow_app.core.policy import CancellationRequest
from flow_app.core.snapshot import HookStatus
from flow_app.errors import EventConflictError, HookTokenConflictError, RunNotFoundError
from tests.store.support import DONE, add, at_once, begin, done, hook, kinds, link, progress, step, try_begin

SECRET = tokens.digest("secret")


def active(store):
    return [(found.run_id, found.hook_id) for found in store.active_hooks()]


def test_a_hook_is_found_by_id_and_by_token(store, clock):
    row = add(store, begin(store), hook(metadata={"kind": "human"}), active_hooks=1)
    found = store.hook(row, "approval")
    assert (found.run_id, found.hook_id, found.status) == ("r1", "approval", HookStatus.ACTIVE)
    assert (found.token_digest, found.metadata, found.received) == (SECRET, Payload.of({"kind": "human"}), None)
    assert store.active_hooks_by_token(SECRET) == store.active_hooks() == [found]
    assert store.active_hooks_by_token(tokens.digest("other")) == []
    assert store.hook(row, "Approval") is None


@pytest.mark.parametrize(
    ("event", "status", "received"),
    [
        (HookReceived("approval", Payload.of("yes")), HookStatus.RECEIVED, Payload.of("yes")),
        (HookDisposed("approval"), HookStatus.DISPOSED, None),
        (HookExpired("approval"), HookStatus.EXPIRED, None),
        (RunCancellationRequested(CancellationRequest("stop")), HookStatus.CANCELLED, None),
        (done(), HookStatus.CANCELLED, None),
    ],
    ids=lambda value: getattr(value, "type", None),
)
def test_a_closed_hook_frees_its_token(store, event, status, received):
    row = add(store, begin(store), hook(), active_hooks=1)
    change = DONE if event.terminal else {}
    row = add(store, row, event, **{**change, "active_hooks": 0})
    found = store.hook(row, "approval")
    assert (found.status, found.received) == (status, received)
    assert active(store) == []
    add(store, begin(store, "r2"), hook(), active_hooks=1)
    assert active(store) == [("r2", "approval")]


def test_a_resolved_hook_stays_as_it_is_when_the_run_ends(store):
    row = add(store, begin(store), hook("a"), hook("b", token="other"), active_hooks=2)
    row = add(store, row, HookReceived("a", Payload.of(1)), active_hooks=1)
    row = add(store, row, done(), **DONE, active_hooks=0)
    assert store.hook(row, "a").status is HookStatus.RECEIVED
    assert store.hook(row, "b").status is HookStatus.CANCELLED


def test_active_hooks_are_sorted_by_run_and_hook(store):
    add(store, begin(store, "b"), hook("x", token="1"), hook("Z", token="2"), active_hooks=2)
    add(store, begin(store, "a"), hook("y", token="3"), active_hooks=1)
    assert active(store) == [("a", "y"), ("b", "Z"), ("b", "x")]


@pytest.mark.parametrize("owner", ["r1", "r2"])
def test_one_token_opens_one_door(store, owner):
    begin(store, "r1")
    begin(store, "r2")
    row = add(store, store.row(owner), hook("first"), active_hooks=1)
    with pytest.raises(HookTokenConflictError) as refused:
        add(store, store.row("r2"), step(), hook("second"), active_hooks=1)
    assert (refused.value.owner_run_id, refused.value.owner_hook_id) == (owner, "first")
    assert "secret" not in str(refused.value)
    assert store.row("r2").last_sequence == (row.last_sequence if owner == "r2" else 2)


def test_one_token_twice_in_one_append_is_refused(store):
    row = begin(store)
    with pytest.raises(HookTokenConflictError):
        add(store, row, hook("a"), hook("b"), active_hooks=2)
    assert store.row("r1") == row


def test_a_token_that_is_freed_in_the_same_append_may_be_used(store):
    row = add(store, begin(store), hook("a"), active_hooks=1)
    add(store, row, HookDisposed("a"), hook("b"), active_hooks=1)
    assert active(store) == [("r1", "b")]


def test_racing_for_one_token_has_one_winner(store):
    rows = [begin(store, f"r{number}") for number in range(4)]
    results = at_once(*[lambda row=row: add(store, row, hook(), active_hooks=1) for row in rows])
    assert kinds(results) == [*["HookTokenConflictError"] * 3, "RunRow"]
    (owner,) = store.active_hooks_by_token(SECRET)
    assert {error.owner_run_id for error in results if isinstance(error, HookTokenConflictError)} == {owner.run_id}


def test_ids_that_a_database_would_take_for_one_are_several(store):
    ids = ["Approve", "approve", "approve ", "ápprove"]
    opened = [hook(hook_id, token=hook_id) for hook_id in ids]
    recorded = [progress(progress_id, number) for number, progress_id in enumerate(ids)]
    linked = [link(reference_id) for reference_id in ids]
    row = add(store, begin(store), *opened, *recorded, *linked, active_hooks=4)
    for number, same in enumerate(ids):
        assert store.hook(row, same).token_digest == tokens.digest(same)
        assert store.progress(row, same).value["completed"] == number
        assert store.child_operation(row, same).value["reference_id"] == same
    row = add(store, row, HookReceived("approve", Payload.of(1)), active_hooks=3)
    assert [hook_id for _run, hook_id in active(store)] == ["Approve", "approve ", "ápprove"]


def test_what_was_not_recorded_is_not_there(store):
    row = begin(store)
    assert (store.hook(row, "x"), store.progress(row, "x"), store.child_operation(row, "x")) == (None, None, None)


def test_progress_and_links_come_back_exactly(store):
    row = add(store, begin(store), progress("half", 2**64 - 1), link("job", "r1"), progress_completed=2**64 - 1)
    assert store.progress(row, "half") == progress("half", 2**64 - 1).progress
    assert store.child_operation(row, "job") == link("job", "r1").child


def test_a_link_leads_to_a_run_that_exists(store):
    row = begin(store)
    with pytest.raises(RunNotFoundError) as refused:
        add(store, row, step(), link("child", "nowhere"))
    assert refused.value.run_id == "nowhere"
    assert store.row("r1") == row
    begin(store, "r2")
    add(store, row, link("child", "r2"))


def test_a_conflict_leaves_no_rows_behind(store):
    old = begin(store)
    row = add(store, old, step())
    with pytest.raises(EventConflictError):
        add(store, old, hook(), progress("p"), active_hooks=1)
    assert (store.hook(row, "approval"), store.progress(row, "p"), active(store)) == (None, None, [])


def test_an_imported_history_leaves_the_rows_that_its_end_says(store):
    events = [
        hook("a", token="1"),
        HookReceived("a", Payload.of("yes")),
        hook("b", token="1"),
        HookDisposed("b"),
        hook("c", token="1"),
        progress("p"),
        link("self", "imported"),
    ]
    row = begin(store, "imported", *events, active_hooks=1)
    assert [store.hook(row, hook_id).status.value for hook_id in "abc"] == ["received", "disposed", "active"]
    assert store.hook(row, "a").received == Payload.of("yes")
    assert active(store) == [("imported", "c")]
    assert store.progress(row, "p") is not None
    ended = begin(store, "ended", hook("d", token="2"), done(), **DONE)
    assert store.hook(ended, "d").status is HookStatus.CANCELLED


def test_an_imported_history_with_a_taken_token_is_refused_whole(store):
    add(store, begin(store), hook(), active_hooks=1)
    with pytest.raises(HookTokenConflictError):
        try_begin(store, "imported", progress("p"), hook("other"), active_hooks=1)
    assert store.run_ids() == ["r1"]
