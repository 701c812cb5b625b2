"""Arbitrary values, events and commands for the property tests."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from decimal import Decimal

from hypothesis import strategies as st

from flow_app.core import commands as cmd
from flow_app.core import events as ev
from flow_app.core.payload import NULL, Payload
from flow_app.core.policy import (
    CancellationRequest,
    ChildOperationReference,
    OnExhausted,
    RetryPolicy,
    WorkflowProgress,
)
from flow_app.core.spec import RuntimeSpec, WorkflowSpec
from flow_app.core.tokens import digest
from tests.unit.builders import NOW

#: Any text but two surrogates that spell one character, which become that character.
texts = st.text(st.characters(), max_size=12).map(lambda text: text.encode("utf-16", "surrogatepass")).map(
    lambda data: data.decode("utf-16", "surrogatepass")
)  # fmt: skip
keys = texts | st.sampled_from(["$", "$$", "$decimal", "$$uuid", "$datetime", "a", "b", ""])
offsets = st.integers(-86_399, 86_399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
numbers = st.integers() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)
plain_leaves = st.none() | st.booleans() | numbers | texts
rich_leaves = (
    st.decimals(allow_nan=False, allow_infinity=False)
    | st.datetimes(timezones=st.just(UTC) | offsets)
    | st.dates()
    | st.times(timezones=st.none() | offsets)
    | st.timedeltas()
    | st.uuids()
    | st.binary(max_size=12)
)


def nested(leaves: st.SearchStrategy) -> st.SearchStrategy:
    return st.recursive(
        leaves, lambda item: st.lists(item, max_size=4) | st.dictionaries(keys, item, max_size=4), max_leaves=12
    )


plain_values = nested(plain_leaves)
values = nested(plain_leaves | rich_leaves)


#: So few that two of them are often equal.
few_values = st.recursive(
    st.sampled_from([None, 0, 1, 1.0, True, False, -0.0, 0.0, "1", "$x", Decimal("1"), Decimal("1.0"), b"1"]),
    lambda item: st.lists(item, max_size=2) | st.dictionaries(st.sampled_from(["a", "$x"]), item, max_size=2),
    max_leaves=2,
)

# --- events ---------------------------------------------------------------------------------------------------------

ids = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8).filter(str.strip)
instants = st.datetimes(timezones=st.just(UTC))
reasons = st.none() | texts
u32 = st.integers(0, 2**32 - 1)
retries = st.builds(RetryPolicy, u32, st.integers(0, 2**64 - 1), st.sampled_from(OnExhausted))
specs = st.builds(
    WorkflowSpec,
    ids,
    ids,
    st.none() | st.builds(RuntimeSpec, st.just("native_ts"), ids, ids),
    st.none() | st.just("build-1"),
)


def progresses(details: st.SearchStrategy) -> st.SearchStrategy[WorkflowProgress]:
    counts = st.tuples(st.integers(0, 2**32), st.none() | st.integers(2**32, 2**64 - 1))
    return st.builds(
        lambda name, count, message, extra: WorkflowProgress(name, count[0], count[1], message, extra),
        ids, counts, reasons, details,
    )  # fmt: skip


def children(metadata: st.SearchStrategy) -> st.SearchStrategy[ChildOperationReference]:
    return st.builds(ChildOperationReference, ids, ids, ids, st.none() | st.just("run-2"), metadata)


def events(of: st.SearchStrategy) -> st.SearchStrategy[ev.Event]:
    """Every kind of event, its payloads made of these values."""
    payloads = of.map(Payload.of)
    return st.one_of(
        st.builds(ev.RunCreated, specs, payloads),
        st.just(ev.RunStarted()),
        st.builds(ev.RunCompleted, payloads),
        st.builds(ev.RunFailed, texts),
        st.builds(ev.RunCancellationRequested, st.builds(CancellationRequest, reasons)),
        st.builds(ev.RunCancelled, reasons),
        st.builds(ev.RunTimedOut, instants, reasons),
        st.builds(ev.RunRetryExhausted, ids, u32, texts),
        st.builds(ev.RunHostShutdown, reasons),
        st.builds(ev.RunProgressRecorded, progresses(of).map(WorkflowProgress.to_payload)),
        st.builds(ev.ChildOperationLinked, children(of).map(ChildOperationReference.to_payload)),
        st.builds(ev.StepCreated, ids, ids, payloads, retries),
        st.builds(ev.StepStarted, ids, u32),
        st.builds(ev.StepCompleted, ids, payloads),
        st.builds(ev.StepRetrying, ids, u32, texts, st.none() | instants),
        st.builds(ev.StepFailed, ids, u32, texts),
        st.builds(ev.WaitCreated, ids, instants),
        st.builds(ev.WaitCompleted, ids),
        st.builds(ev.HookCreated, ids, texts.map(digest), payloads, st.none() | instants),
        st.builds(ev.HookReceived, ids, payloads),
        st.builds(ev.HookDisposed, ids),
        st.builds(ev.HookExpired, ids),
    )


# --- what happens to a run ------------------------------------------------------------------------------------------

few = st.sampled_from(["a", "b", "c"])
soon = st.integers(-5, 40).map(lambda seconds: NOW + timedelta(seconds=seconds))
small = st.sampled_from([None, 1, 1.0, True, {"x": 1}])
policies = st.none() | st.builds(
    RetryPolicy, st.integers(0, 3), st.sampled_from([0, 10_000, 2**64 - 1]), st.sampled_from(OnExhausted)
)
steps = st.builds(cmd.ScheduleStep, few, st.sampled_from(["charge", "refund"]), small.map(Payload.of), policies)

#: Commands over few ids and arguments, so that they meet, repeat and contradict each other.
batches = st.lists(steps, max_size=4).map(lambda members: cmd.ScheduleSteps(tuple(members)))
commands = st.one_of(
    steps,
    steps,
    steps,
    batches,
    batches,
    st.builds(cmd.WaitUntil, few, soon),
    st.builds(cmd.CreateHook, few, st.sampled_from(["t0ken-1", "t0ken-2"]), small.map(Payload.of), st.none() | soon),
    st.builds(cmd.RecordProgress, st.builds(WorkflowProgress, few, st.integers(0, 1))),
    st.builds(cmd.LinkChildOperation, st.builds(ChildOperationReference, few, st.just("export"), st.just("job"))),
    st.sampled_from([cmd.Cancel(), cmd.Cancel(), cmd.Cancel(), cmd.Fail("no"), cmd.Timeout(NOW), cmd.Complete(NULL)]),
)
