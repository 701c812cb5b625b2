"""Behaviours that other engines' suites assert, as data: the rows A to F and H that a kernel of commands can have.

Not here: D29, a call of another kind in the same position, for commands have ids and no positions, and each kind has
ids of its own; F44, an answer that is an exception in the workflow, for hooks are answered with a payload and nothing
is raised into workflow code.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flow_app import RetryPolicy
from flow_app.conf import Options
from flow_app.core.tasks import DriveRun
from flow_app.errors import (
    LeaseLostError,
    NonDeterministicError,
    PayloadError,
    RunConflictError,
    RunNotFoundError,
    RunTerminalError,
    RuntimeFailureError,
    StepNotRegisteredError,
    WorkflowNotRegisteredError,
)
from tests.engine.conformance.scenario import RUN, EventBody, Scenario, World, play

T0 = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ONCE = {"max_attempts": 1, "delay_ms": 0}
NESTED = {"lines": [{"sku": "a", "n": 1.5}, {"sku": "b", "tags": ["x", None, True]}], "total": {"eur": -3}}
BLOB = "x" * 600


# --- code: one workflow function for each shape of run --------------------------------------------------------------


def fails(ctx):
    raise ValueError(f"no luck in attempt {ctx.attempt}")


def later(ctx):
    """Fails once."""
    return fails(ctx) if ctx.attempt == 1 else "at last"


STEPS = {
    "hello": lambda ctx: "hello",
    "twice": lambda ctx: ctx.input * 2,
    "nested": lambda ctx: NESTED,
    "fails": fails,
    "later": later,
    "echo": lambda ctx: ctx.input,
    "big": lambda ctx: BLOB,
    "other": lambda ctx: "other",
    "once": lambda ctx: "once",
}


def one_step(name: str, *, retry: RetryPolicy | None = None, given: Any = None):
    def flow(ctx):
        if not ctx.step_completed("a"):
            return ctx.schedule_step("a", name, given, retry=retry)
        return ctx.complete(ctx.step_output("a"))

    return flow


def two_steps(ctx):
    if not ctx.step_completed("a"):
        return ctx.schedule_step("a", "twice", ctx.input)
    if not ctx.step_completed("b"):
        return ctx.schedule_step("b", "twice", ctx.step_output("a"))
    return ctx.complete(ctx.step_output("b"))


def step_then_wait(ctx):
    if not ctx.step_completed("a"):
        return ctx.schedule_step("a", "nested")
    if not ctx.wait_completed("w"):
        return ctx.wait_until("w", T0 + MINUTE)
    return ctx.complete(ctx.step_output("a"))


def caught(ctx):
    if ctx.step_failed("a") is None:
        return ctx.schedule_step("a", "fails", retry=RetryPolicy.none().continue_workflow_on_failure())
    if not ctx.step_completed("b"):
        return ctx.schedule_step("b", "echo", ctx.step_failed("a"))
    return ctx.complete(ctx.step_output("b"))


def once_caught(ctx):
    if (error := ctx.step_failed("a")) is not None:
        return ctx.complete(error)
    return ctx.schedule_step("a", "once", retry=RetryPolicy.none().continue_workflow_on_failure())


def helpers(ctx):
    now = [ctx.uuid("order"), ctx.random("dice").random(), ctx.created_at]
    if not ctx.step_completed("a"):
        return ctx.schedule_step("a", "echo", now)
    if not ctx.wait_completed("w"):
        return ctx.wait_until("w", T0 + MINUTE)
    return ctx.complete(ctx.step_output("a") == now)


def version(ctx):
    return ctx.complete(ctx.version) if ctx.wait_completed("w") else ctx.wait_until("w", T0 + MINUTE)


def waits(ctx):
    for number in (1, 2):
        if not ctx.wait_completed(f"w{number}"):
            return ctx.wait_until(f"w{number}", T0 + number * MINUTE)
    return ctx.complete()


def race(ctx):
    """A hook against a timer: both are open, the first one decides."""
    if not ctx.wait_scheduled("w"):
        return ctx.wait_until("w", T0 + MINUTE)
    if ctx.hook_received("h"):
        return ctx.complete("answered")
    return ctx.complete("too late") if ctx.wait_completed("w") else ctx.create_hook("h")


def hook(ctx):
    return ctx.complete(ctx.hook_payload("h")) if ctx.hook_received("h") else ctx.create_hook("h", "secret-token")


def hook_asked_later(ctx):
    """The hook is open while a timer runs and a step works; only then is it asked."""
    if not ctx.hook_created("h"):
        return ctx.create_hook("h", metadata={"kind": "approval"})
    if not ctx.wait_completed("w"):
        return ctx.wait_until("w", T0 + MINUTE)
    if not ctx.step_completed("a"):
        return ctx.schedule_step("a", "hello")
    if not ctx.hook_received("h"):
        return ctx.create_hook("h", metadata={"kind": "approval"})
    return ctx.complete(ctx.hook_payload("h"))


def two_hooks(ctx):
    for name in ("left", "right"):
        if not ctx.hook_created(name):
            return ctx.create_hook(name)
    for name in ("left", "right"):
        if not ctx.hook_received(name):
            return ctx.create_hook(name)
    return ctx.complete({name: ctx.hook_payload(name) for name in ("left", "right")})


def broken(ctx):
    raise ZeroDivisionError("a bug")


FLOWS = {
    "hello": one_step("hello"),
    "two-steps": two_steps,
    "step-then-wait": step_then_wait,
    "caught": caught,
    "uncaught": one_step("fails"),
    "once": one_step("once"),
    "once-caught": once_caught,
    "helpers": helpers,
    "empty": lambda ctx: ctx.complete({"n": ctx.input}),
    "big": one_step("big"),
    "three-attempts": one_step("fails", retry=RetryPolicy.fixed(3, timedelta(seconds=10))),
    "default-policy": one_step("fails", retry=RetryPolicy()),
    "later": one_step("later", retry=RetryPolicy.fixed(2)),
    "renamed": one_step("hello"),
    "version": version,
    "unknown-step": one_step("nowhere"),
    "broken": broken,
    "waits": waits,
    "race": race,
    "hook": hook,
    "hook-asked-later": hook_asked_later,
    "two-hooks": two_hooks,
}


# --- events ---------------------------------------------------------------------------------------------------------


def begin(flow: str, given: Any = None) -> list[EventBody]:
    runtime = {"kind": "python", "entrypoint": flow, "export_name": "run"}
    spec = {"name": flow, "version": "v1", "runtime": runtime}
    return [("run_created", {"spec": spec, "input": given}), ("run_started", {})]


def created(step_id: str, name: str, given: Any = None, retry: Any = None) -> EventBody:
    return "step_created", {"step_id": step_id, "step_name": name, "input": given, "retry": retry or ONCE}


def started(step_id: str, attempt: int = 1) -> EventBody:
    return "step_started", {"step_id": step_id, "attempt": attempt}


def succeeded(step_id: str, output: Any) -> EventBody:
    return "step_completed", {"step_id": step_id, "output": output}


def failed(step_id: str, attempt: int, error: str) -> EventBody:
    return "step_failed", {"step_id": step_id, "attempt": attempt, "error": error}


def retrying(step_id: str, attempt: int, error: str, at: datetime | None = None) -> EventBody:
    return "step_retrying", {"step_id": step_id, "attempt": attempt, "error": error, "retry_after": at}


def exhausted(step_id: str, attempt: int, error: str) -> EventBody:
    return "run_retry_exhausted", {"step_id": step_id, "attempt": attempt, "error": error}


def waiting(wait_id: str, at: datetime) -> EventBody:
    return "wait_created", {"wait_id": wait_id, "resume_at": at}


def waited(wait_id: str) -> EventBody:
    return "wait_completed", {"wait_id": wait_id}


def asked(hook_id: str, token: str = "$TOKEN1", metadata: Any = None) -> EventBody:
    return "hook_created", {"hook_id": hook_id, "token": token, "metadata": metadata}


def answered(hook_id: str, payload: Any) -> EventBody:
    return "hook_received", {"hook_id": hook_id, "payload": payload}


def completed(output: Any = None) -> EventBody:
    return "run_completed", {"output": output}


def no_luck(attempt: int) -> str:
    return f"ValueError: no luck in attempt {attempt}"


HELLO = [*begin("hello"), created("a", "hello"), started("a"), succeeded("a", "hello"), completed("hello")]
RENAMED = [*begin("renamed"), created("a", "hello"), started("a")]
TEN_SECONDS = {"max_attempts": 3, "delay_ms": 10_000}
NEXT = timedelta(seconds=10)

# --- the scenarios --------------------------------------------------------------------------------------------------

STEPS_AND_REPLAY = [
    Scenario("A1", "one step that succeeds", "hello", "completed", HELLO, output="hello", calls=["hello#1"]),
    Scenario(
        "A2",
        "the second step gets the first one's stored result",
        "two-steps",
        "completed",
        [
            *begin("two-steps", 3),
            *(created("a", "twice", 3), started("a"), succeeded("a", 6)),
            *(created("b", "twice", 6), started("b"), succeeded("b", 12)),
            completed(12),
        ],
        input=3,
        output=12,
        calls=["twice#1", "twice#1"],
    ),
    Scenario(
        "A4 A5",
        "after a suspension a result comes back equal, and its step is not called again",
        "step-then-wait",
        "completed",
        [
            *begin("step-then-wait"),
            *(created("a", "nested"), started("a"), succeeded("a", NESTED)),
            *(waiting("w", T0 + MINUTE), waited("w")),
            completed(NESTED),
        ],
        output=NESTED,
        outside=[("stands", "suspended"), ("restart",), ("advance", 60), ("tick", RUN)],
        calls=["nested#1"],
    ),
    Scenario(
        "A7",
        "a caught failure is followed by more steps",
        "caught",
        "completed",
        [
            *begin("caught"),
            created("a", "fails", retry={**ONCE, "on_exhausted": "continue_workflow"}),
            *(started("a"), failed("a", 1, no_luck(1))),
            *(created("b", "echo", no_luck(1)), started("b"), succeeded("b", no_luck(1))),
            completed(no_luck(1)),
        ],
        output=no_luck(1),
        calls=["fails#1", "echo#1"],
    ),
    Scenario(
        "A8",
        "a failure that nobody catches fails the run, with its type and message",
        "uncaught",
        "failed",
        [
            *begin("uncaught"),
            *(created("a", "fails"), started("a"), failed("a", 1, no_luck(1))),
            exhausted("a", 1, no_luck(1)),
        ],
        error=no_luck(1),
        calls=["fails#1"],
    ),
    Scenario(
        "A10",
        "a workflow without steps completes",
        "empty",
        "completed",
        [*begin("empty", 7), completed({"n": 7})],
        input=7,
        output={"n": 7},
    ),
    Scenario(
        "A13",
        "a result over the limit is refused by name: the attempt has failed",
        "big",
        "failed",
        [
            *begin("big"),
            *(created("a", "big"), started("a"), failed("a", 1, "$ERROR"), exhausted("a", 1, "$ERROR")),
        ],
        error="PayloadError: output of step 'a' cannot be stored: "
        "$ takes 602 bytes, more than the 500 of FLOW_APP['MAX_PAYLOAD'].",
        options=Options(max_payload=500),
        calls=["big#1"],
    ),
]

RETRIES = [
    Scenario(
        "B16",
        "attempts run out after exactly so many calls; the last failure names no next time",
        "three-attempts",
        "failed",
        [
            *begin("three-attempts"),
            created("a", "fails", retry=TEN_SECONDS),
            *(started("a", 1), retrying("a", 1, no_luck(1), T0 + NEXT)),
            *(started("a", 2), retrying("a", 2, no_luck(2), T0 + 2 * NEXT)),
            *(started("a", 3), failed("a", 3, no_luck(3)), exhausted("a", 3, no_luck(3))),
        ],
        error=no_luck(3),
        outside=[
            *(("stands", "suspended"), ("advance", 9), ("tick",), ("advance", 1), ("tick", RUN)),
            *(("stands", "suspended"), ("advance", 10), ("tick", RUN), ("advance", 600), ("tick",)),
        ],
        calls=["fails#1", "fails#2", "fails#3"],
    ),
    Scenario(
        "B17",
        "the default policy is three attempts at once",
        "default-policy",
        "failed",
        [
            *begin("default-policy"),
            created("a", "fails", retry={"max_attempts": 3, "delay_ms": 0}),
            *(started("a", 1), retrying("a", 1, no_luck(1)), started("a", 2), retrying("a", 2, no_luck(2))),
            *(started("a", 3), failed("a", 3, no_luck(3)), exhausted("a", 3, no_luck(3))),
        ],
        error=no_luck(3),
        calls=["fails#1", "fails#2", "fails#3"],
    ),
    Scenario(
        "B17",
        "an attempt that succeeds ends the retries",
        "later",
        "completed",
        [
            *begin("later"),
            created("a", "later", retry={"max_attempts": 2, "delay_ms": 0}),
            *(started("a", 1), retrying("a", 1, no_luck(1)), started("a", 2), succeeded("a", "at last")),
            completed("at last"),
        ],
        output="at last",
        calls=["later#1", "later#2"],
    ),
]

CRASHES = [
    Scenario(
        "C22",
        "a worker dies in a step: it runs again, with one start and one success in the log",
        "hello",
        "completed",
        HELLO,
        output="hello",
        crash_at="step_completed",
        outside=[("restart",), ("advance", 30), ("call", "resume_scheduled_run")],
        calls=["hello#1", "hello#1"],
    ),
    Scenario(
        "C23",
        "a worker dies in a step that runs at most once: it does not run again, and the run fails",
        "once",
        "failed",
        [
            *begin("once"),
            *(created("a", "once"), started("a"), failed("a", 1, "worker lost"), exhausted("a", 1, "worker lost")),
        ],
        error="worker lost",
        crash_at="step_completed",
        outside=[("restart",), ("advance", 30), ("call", "resume_scheduled_run")],
        calls=["once#1"],
    ),
    Scenario(
        "C23",
        "the workflow may handle that",
        "once-caught",
        "completed",
        [
            *(*begin("once-caught"), created("a", "once", retry=ONCE | {"on_exhausted": "continue_workflow"})),
            *(started("a"), failed("a", 1, "worker lost"), completed("worker lost")),
        ],
        output="worker lost",
        crash_at="step_completed",
        outside=[("restart",), ("advance", 30), ("call", "resume_scheduled_run")],
        calls=["once#1"],
    ),
    Scenario(
        "C25",
        "all workers die: the scheduler finds the run when its lease expires, and not before",
        "hello",
        "completed",
        HELLO,
        output="hello",
        crash_at="step_completed",
        outside=[("restart",), ("advance", 29), ("tick",), ("advance", 1), ("tick", RUN)],
        calls=["hello#1", "hello#1"],
    ),
    Scenario(
        "C26",
        "the old worker comes back late: its result is refused and the log is as the new one left it",
        "hello",
        "completed",
        HELLO,
        output="hello",
        refused=LeaseLostError,
        during={"hello": [("advance", 31), ("tick", RUN)]},
        calls=["hello#1", "hello#1"],
    ),
]

DETERMINISM = [
    Scenario(
        "D28",
        "another step name is an error that says which step and both names; nothing is written",
        "renamed",
        "running",
        RENAMED,
        crash_at="step_completed",
        outside=[
            *(("restart",), ("advance", 30), ("deploy", "renamed", one_step("other"))),
            ("fails", NonDeterministicError, ["'a'", '"hello"', '"other"'], "call", "drive"),
        ],
        calls=["hello#1"],
        blocked="non_deterministic",
    ),
    Scenario(
        "D31",
        "such a run is held, not failed, and goes on with the old code",
        "renamed",
        "completed",
        [*RENAMED, succeeded("a", "hello"), completed("hello")],
        output="hello",
        crash_at="step_completed",
        outside=[
            *(("restart",), ("advance", 30), ("deploy", "renamed", one_step("hello", given="changed"))),
            ("fails", NonDeterministicError, ["'a'", '"changed"', "null"], "tick", RUN),
            *(("stands", "running"), ("deploy", "renamed", one_step("hello")), ("advance", 5), ("tick", RUN)),
        ],
        calls=["hello#1", "hello#1"],
    ),
    Scenario(
        "D31",
        "workflow code that raises holds the run too",
        "broken",
        "completed",
        [*begin("broken"), completed("mended")],
        output="mended",
        refused=RuntimeFailureError,
        outside=[("stands", "running"), ("deploy", "broken", lambda ctx: ctx.complete("mended")), ("call", "drive")],
    ),
    Scenario(
        "D32",
        "ids, chance and the time of creation are the same on each replay",
        "helpers",
        "completed",
        [
            *(*begin("helpers"), created("a", "echo", "$VALUES"), started("a"), succeeded("a", "$VALUES")),
            *(waiting("w", T0 + MINUTE), waited("w"), completed(True)),
        ],
        output=True,
        outside=[("restart",), ("advance", 60), ("tick", RUN)],
        calls=["echo#1"],
    ),
    Scenario(
        "D34",
        "the version is what the run began with",
        "version",
        "completed",
        [*begin("version"), waiting("w", T0 + MINUTE), waited("w"), completed("v1")],
        output="v1",
        outside=[("advance", 60), ("tick", RUN)],
    ),
    Scenario(
        "D35",
        "a step that this worker does not know is refused by name, and the run is not lost",
        "unknown-step",
        "completed",
        [
            *begin("unknown-step"),
            *(created("a", "hello"), started("a"), succeeded("a", "hello"), completed("hello")),
        ],
        output="hello",
        refused=StepNotRegisteredError,
        outside=[
            ("fails", StepNotRegisteredError, ["'nowhere'"], "call", "drive"),
            *(("stands", "running"), ("deploy", "unknown-step", one_step("hello")), ("call", "drive")),
        ],
        calls=["hello#1"],
    ),
]

WAITED = [*begin("waits"), waiting("w1", T0 + MINUTE)]

TIMERS = [
    Scenario(
        "E37",
        "a wait never ends early",
        "waits",
        "suspended",
        WAITED,
        outside=[("advance", 59.999999), ("tick",), ("handle", DriveRun(RUN)), ("stands", "suspended")],
    ),
    Scenario(
        "E37 E38",
        "two waits end with the tick after their time, each with a suspension of its own",
        "waits",
        "completed",
        [*WAITED, waited("w1"), waiting("w2", T0 + 2 * MINUTE), waited("w2"), completed()],
        outside=[
            *(("stands", "suspended"), ("advance", 60), ("tick", RUN)),
            *(("stands", "suspended"), ("tick",), ("advance", 60), ("tick", RUN)),
        ],
    ),
    Scenario(
        "E40",
        "a timer that lost its race does not wake the run later",
        "race",
        "completed",
        [
            *begin("race"),
            *(waiting("w", T0 + MINUTE), asked("h"), answered("h", "yes")),
            completed("answered"),
        ],
        output="answered",
        outside=[("call", "resume_hook", "h", "yes"), ("advance", 60), ("tick",), ("call", "resume_scheduled_run")],
    ),
    Scenario(
        "E40",
        "the hook that lost it takes no answer",
        "race",
        "completed",
        [*begin("race"), waiting("w", T0 + MINUTE), asked("h"), waited("w"), completed("too late")],
        output="too late",
        outside=[("advance", 60), ("tick", RUN), ("fails", RunTerminalError, [], "call", "resume_hook", "h", "yes")],
    ),
]

ASKED = [*begin("hook"), asked("h")]
BOTH = [*begin("two-hooks"), asked("left", "$TOKEN1"), asked("right", "$TOKEN2")]
RESULT = {"left": 1, "right": 2}
EARLY = asked("h", metadata={"kind": "approval"})

HOOKS = [
    Scenario(
        "F41",
        "a hook suspends the run, and its payload is the result",
        "hook",
        "completed",
        [*ASKED, answered("h", NESTED), completed(NESTED)],
        output=NESTED,
        outside=[("stands", "suspended"), ("tick",), ("call", "resume_hook", "h", NESTED)],
    ),
    Scenario(
        "F43",
        "an answer during a timer is kept, and there when it is asked for",
        "hook-asked-later",
        "completed",
        [
            *begin("hook-asked-later"),
            *(EARLY, waiting("w", T0 + MINUTE), answered("h", "early"), waited("w")),
            *(created("a", "hello"), started("a"), succeeded("a", "hello"), completed("early")),
        ],
        output="early",
        outside=[("call", "resume_hook", "h", "early"), ("stands", "suspended"), ("advance", 60), ("tick", RUN)],
        calls=["hello#1"],
    ),
    Scenario(
        "F43",
        "an answer during a step is kept, and the step is not run again for it",
        "hook-asked-later",
        "completed",
        [
            *begin("hook-asked-later"),
            *(EARLY, waiting("w", T0 + MINUTE), waited("w"), created("a", "hello"), started("a")),
            *(answered("h", "early"), succeeded("a", "hello"), completed("early")),
        ],
        output="early",
        during={"hello": [("call", "resume_hook", "h", "early")]},
        outside=[("advance", 60), ("tick", RUN)],
        calls=["hello#1"],
    ),
    *(
        Scenario(
            "F47",
            f"two hooks are open at once and answered {order[0]} first",
            "two-hooks",
            "completed",
            [*BOTH, *(answered(name, RESULT[name]) for name in order), completed(RESULT)],
            output=RESULT,
            outside=[("stands", "suspended"), *(("call", "resume_hook", name, RESULT[name]) for name in order)],
        )
        for order in (("left", "right"), ("right", "left"))
    ),
    Scenario(
        "F49",
        "an empty answer is null",
        "hook",
        "completed",
        [*ASKED, answered("h", None), completed(None)],
        outside=[("call", "resume_hook", "h")],
    ),
]

AGAIN = [("stands", "completed"), ("start_at_once", "hello", None, 10), ("got", *[RUN] * 10)]

OPERATING = [
    Scenario(
        "H56",
        "starting what exists gives the same run",
        "hello",
        "completed",
        HELLO,
        output="hello",
        outside=AGAIN,
        calls=["hello#1"],
    ),
]


ALL = [*STEPS_AND_REPLAY, *RETRIES, *CRASHES, *DETERMINISM, *TIMERS, *HOOKS, *OPERATING]


@pytest.fixture
def world(store, clock) -> World:
    return World(store, clock, FLOWS)


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: f"{scenario.row}: {scenario.what}")
def test_conformance(scenario, world):
    world.register(scenario.flow, STEPS)
    play(scenario, world)


# --- rows that are more than one run's history ----------------------------------------------------------------------


def test_h56_ten_callers_at_once_start_one_run_and_each_gets_its_id(world):
    world.register("hello", STEPS)
    world.act(("start_at_once", "hello", None, 10))
    assert world.started == [RUN] * 10
    assert world.engine.list_run_ids() == [RUN]
    assert [item.type for item in world.engine.history(RUN)] == [event_type for event_type, _body in HELLO]
    assert world.calls == ["hello#1"]


def test_h56_starting_what_exists_with_another_input_is_refused(world):
    world.register("empty", STEPS)
    world.engine.start("empty", 1, run_id=RUN)
    with pytest.raises(RunConflictError):
        world.engine.start("empty", 2, run_id=RUN)
    assert len(world.engine.history(RUN)) == 3


def test_d35_a_workflow_that_this_process_does_not_know_is_refused_by_name(world):
    with pytest.raises(WorkflowNotRegisteredError, match="'nowhere'"):
        world.engine.start("nowhere", run_id=RUN)
    with pytest.raises(RunNotFoundError):
        world.engine.snapshot(RUN)


def test_a13_an_input_over_the_limit_is_refused_by_name_before_anything_is_written(world):
    world.register("empty", STEPS)
    world.engine.services.options = Options(max_payload=500)
    with pytest.raises(PayloadError, match="run input"):
        world.engine.start("empty", BLOB, run_id=RUN)
    assert world.engine.list_run_ids() == []
