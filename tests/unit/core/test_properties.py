"""What must hold for all values, all events and all lives of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from flow_app.core import codec
from flow_app.core import commands as cmd
from flow_app.core import events as ev
from flow_app.core.decider import decide, due_events, failure, repair_exhaustion
from flow_app.core.payload import Payload, dumps
from flow_app.core.policy import CancellationRequest, WorkflowProgress
from flow_app.core.ports import Recorded
from flow_app.core.projection import evolve, fold
from flow_app.core.snapshot import RunStatus
from flow_app.core.state import RunState
from flow_app.errors import FlowError
from tests.unit import strategies
from tests.unit.builders import BEGUN, CREATED, NOW, RUN, at, extend, history, state_of

quick = settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)


def shape(value: object) -> object:
    """The value with the type of every part spelled out, zeros with their sign."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return type(value), repr(value) if isinstance(value, float) else value


def reread(payload: Payload) -> Payload:
    return Payload(json.loads(payload.text))


# --- payloads -------------------------------------------------------------------------------------------------------


@quick
@given(strategies.values)
def test_every_value_comes_back_exactly_on_the_first_pass_and_on_replay(value):
    payload = Payload.of(value)
    assert shape(payload.value) == shape(value)
    assert shape(reread(payload).value) == shape(value)
    assert str(payload.value) == str(reread(payload).value), "in the same order too"


@quick
@given(strategies.values)
def test_writing_again_what_was_read_changes_nothing(value):
    payload = Payload.of(value)
    assert Payload.of(payload.value).text == payload.text == reread(payload).text
    assert payload.text.isascii()


@quick
@given(strategies.few_values, strategies.few_values)
def test_digests_are_equal_exactly_when_values_and_types_are(one, other):
    assert (Payload.of(one).digest == Payload.of(other).digest) is (spelled(one) == spelled(other))


def spelled(value: object) -> str:
    """The value written out, keys sorted: two instants that are equal under other offsets differ here."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{spelled(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(spelled, value)) + "]"
    return repr(value)


@quick
@given(strategies.plain_values)
def test_plain_json_is_its_own_plain_form(value):
    assert shape(Payload.of(value).plain) == shape(value)


@quick
@given(strategies.values)
def test_the_plain_form_of_any_value_is_json(value):
    text = json.dumps(Payload.of(value).plain, allow_nan=False)
    assert shape(json.loads(text)) == shape(Payload.of(value).plain)


# --- events ---------------------------------------------------------------------------------------------------------


@quick
@given(strategies.events(strategies.values))
def test_every_event_is_read_back_from_its_stored_text(event):
    text = dumps(codec.to_body(event))
    again = codec.from_body(event.type, json.loads(text))
    assert again == event
    assert dumps(codec.to_body(again)) == text
    assert codec.to_data(again) == codec.to_data(event)


@quick
@given(strategies.events(strategies.plain_values), st.integers(1, 2**64 - 1), st.uuids(version=4), strategies.instants)
def test_every_event_of_plain_json_goes_over_the_wire_and_back(event, sequence, event_id, recorded_at):
    envelope = ev.EventEnvelope(RUN, sequence, event_id, recorded_at, event)
    wire = json.loads(json.dumps(envelope.to_wire(), allow_nan=False))
    again = ev.EventEnvelope.from_wire(wire)
    assert again == envelope
    assert again.to_wire() == wire


@quick
@given(strategies.events(strategies.values))
def test_every_event_has_a_wire_form_that_stays_as_it_is(event):
    wire = json.loads(json.dumps(codec.event_to_wire(event), allow_nan=False))
    assert codec.event_to_wire(codec.event_from_wire(wire)) == wire


# --- lives of a run -------------------------------------------------------------------------------------------------


def alive(life: Life) -> bool:
    return not life.state.is_terminal


class Life(RuleBasedStateMachine):
    """Random commands, outcomes, timers, answers and requests: what is accepted always folds."""

    @initialize()
    def begin(self) -> None:
        self.now = NOW
        self.state = state_of(*BEGUN)
        self.log: list[ev.Event] = list(BEGUN)

    def accept(self, events: tuple[ev.Event, ...]) -> None:
        for event in events:
            evolve(self.state, Recorded(self.state.last_sequence + 1, event, at(self.state.last_sequence + 1)))
            self.log.append(event)

    @precondition(alive)
    @rule(command=strategies.commands)
    def ask(self, command: cmd.Command) -> None:
        before = self.state.snapshot()
        try:
            decision = decide(self.state, command, now=self.now)
        except FlowError as error:
            text = str(error)
        else:
            self.accept(decision.events)
            for step_id in decision.run:
                assert self.state.steps[step_id].status == "running"
            return
        assert "t0ken" not in text
        assert self.state.snapshot() == before

    @precondition(alive)
    @rule(name=strategies.few, fails=st.booleans())
    def settle(self, name: str, fails: bool) -> None:
        step = self.state.steps.get(name)
        if step is None or not step.awaits_outcome_of(step.attempt):
            return
        if fails:
            self.accept(failure(self.state, name, error="boom", failed_at=self.now))
        else:
            self.accept((ev.StepCompleted(name, Payload.of(self.now)),))

    @precondition(alive)
    @rule(seconds=st.integers(0, 20))
    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        self.accept(due_events(self.state, self.now))
        assert due_events(self.state, self.now) == ()

    @precondition(alive)
    @rule(name=strategies.few, answer=strategies.small)
    def answer(self, name: str, answer: Any) -> None:
        if name in self.state.active_hooks:
            self.accept((ev.HookReceived(name, Payload.of(answer)),))

    @precondition(alive)
    @rule(name=strategies.few)
    def dispose(self, name: str) -> None:
        if name in self.state.active_hooks:
            self.accept((ev.HookDisposed(name),))

    @precondition(alive)
    @rule(number=st.integers(0, 5))
    def watch(self, number: int) -> None:
        if f"host-{number}" not in self.state.progress:
            self.accept((ev.RunProgressRecorded(WorkflowProgress(f"host-{number}", number).to_payload()),))

    @precondition(alive)
    @rule(roll=st.integers(0, 9))
    def stop(self, roll: int) -> None:
        if roll == 0 and self.state.cancellation is None:
            self.accept((ev.RunCancellationRequested(CancellationRequest("stop")),))

    @precondition(alive)
    @rule()
    def crash_between_failure_and_exhaustion(self) -> None:
        running = [step for step in self.state.steps.values() if step.status == "running"]
        if not running:
            return
        events = failure(self.state, running[0].step_id, error="boom", failed_at=self.now)
        self.accept(events[:1])
        repair = repair_exhaustion(self.state)
        assert (repair,) == (events[1:] or (None,))
        self.accept(events[1:])

    @precondition(lambda life: life.state.is_terminal)
    @rule()
    def live_again(self) -> None:
        self.check()
        self.begin()

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.check()

    def check(self) -> None:
        whole = fold(RUN, history(*self.log))
        assert whole == self.state.snapshot(), "folded one by one or from the start"
        stored = [codec.from_body(event.type, json.loads(dumps(codec.to_body(event)))) for event in self.log]
        assert fold(RUN, history(*stored)) == whole, "and as it comes back from the database"
        rebuilt = extend(RunState(RUN), self.log)
        for index in ("open_steps", "delayed_steps", "open_waits", "active_hooks", "unreported_failure"):
            assert getattr(rebuilt, index) == getattr(self.state, index)
        self.check_indexes()

    def check_indexes(self) -> None:
        snapshot = self.state.snapshot()
        steps, waits, hooks = snapshot.steps.values(), snapshot.waits.values(), snapshot.hooks.values()
        assert set(self.state.open_steps) == {step.step_id for step in steps if not step.is_settled}
        assert set(self.state.delayed_steps) == {step.step_id for step in steps if step.retry_after is not None}
        assert set(self.state.open_waits) == {wait.wait_id for wait in waits if wait.status == "waiting"}
        assert set(self.state.active_hooks) == {hook.hook_id for hook in hooks if hook.status == "active"}
        if snapshot.status.is_terminal:
            assert not snapshot.has_open_suspension
            assert not self.state.open_steps
        elif snapshot.status in (RunStatus.RUNNING, RunStatus.SUSPENDED):
            assert snapshot.has_open_suspension is (snapshot.status == "suspended")


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)  # fmt: skip


def random_life(data: st.DataObject, length: int) -> list[ev.Event]:
    """The events of one short life of a run, driven as an engine would."""
    state, log = state_of(*BEGUN), list(BEGUN)
    now = NOW
    for _ in range(length):
        if state.is_terminal:
            break
        events: tuple[ev.Event, ...] = ()
        awaiting = [name for name, step in state.steps.items() if step.awaits_outcome_of(step.attempt)]
        kind = data.draw(st.sampled_from(["ask", "settle", "settle", "wait", "stop"]))
        if kind == "settle" and awaiting:
            name = data.draw(st.sampled_from(awaiting))
            if data.draw(st.booleans()):
                events = failure(state, name, error="boom", failed_at=now)
            else:
                events = (ev.StepCompleted(name, Payload.of(1)),)
        elif kind == "wait":
            now += timedelta(seconds=10)
            events = due_events(state, now)
        elif kind == "stop" and state.cancellation is None:
            events = (ev.RunCancellationRequested(CancellationRequest()),)
        else:
            try:
                events = decide(state, data.draw(strategies.commands), now=now).events
            except FlowError:
                continue
        extend(state, events)
        log += events
    return log


def contents(state: RunState) -> dict[str, Any]:
    return {
        name: dict(value) if isinstance(value := getattr(state, name), dict) else value
        for name in RunState.__slots__
        if name != "_journal"
    }


@settings(quick, max_examples=40)
@given(st.data())
def test_a_rollback_to_any_mark_is_the_state_at_that_mark(data):
    log = random_life(data, 15)
    begin = data.draw(st.integers(0, len(log)))
    state = extend(RunState(RUN), log[:begin])
    marks = []
    for event in log[begin:]:
        marks.append((state.mark(), contents(state)))
        extend(state, [event])
    marks.append((state.mark(), contents(state)))
    while marks:
        index = data.draw(st.integers(0, len(marks) - 1))
        mark, then = marks[index]
        state.rollback(mark)
        assert contents(state) == then
        del marks[index:]
    extend(state, log[state.last_sequence :])
    assert contents(state) == contents(extend(RunState(RUN), log)), "and goes on as if nothing had been taken back"


@settings(quick, max_examples=40)
@given(st.data())
def test_a_history_with_an_event_missing_doubled_or_moved_is_refused(data):
    envelopes = history(*random_life(data, 12))
    cut = data.draw(st.integers(0, len(envelopes) - 1))
    doubled = [*envelopes[: cut + 1], *envelopes[cut:]]
    damaged = [doubled, [replace(envelope, run_id="other") for envelope in envelopes]]
    if cut < len(envelopes) - 1:
        damaged += [
            [*envelopes[:cut], *envelopes[cut + 1 :]],
            [*envelopes[:cut], *envelopes[cut + 1 :], envelopes[cut]],
        ]
    for events in damaged:
        try:
            fold(RUN, events)
        except FlowError:
            continue
        raise AssertionError([envelope.sequence for envelope in events])


@settings(quick, max_examples=60)
@given(st.lists(strategies.events(strategies.plain_values), max_size=6))
def test_any_event_at_all_is_folded_or_refused_with_nothing_written(events):
    state = state_of(CREATED)
    for event in events:
        before, mark = contents(state), state.mark()
        try:
            evolve(state, Recorded(state.last_sequence + 1, event, NOW))
        except FlowError:
            assert contents(state) == before
            assert state.mark() == mark
        else:
            assert state.last_sequence == before["last_sequence"] + 1
