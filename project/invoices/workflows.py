"""The invoice workflow: the way of one invoice, from a row of a file to the mail about its payment.

``invoice`` is called again after everything that happens to the run. Each stage looks at what is recorded and returns
the next command, or None when it has nothing left to do; so the function reads like the story it tells.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from flow_app import HookCallbackRoute, HookMetadata, RetryPolicy, WorkflowProgress, workflow
from flow_app.types import Command, WorkflowContext
from project.invoices import mails, money, steps
from project.invoices.matching import mismatch
from project.invoices.outcomes import Outcome

MILESTONES = ("valid", "matched", "reserved", "approved", "charged")
CHARGE_ATTEMPTS = 5
CHARGE_RETRY = RetryPolicy.fixed(CHARGE_ATTEMPTS, timedelta(milliseconds=200)).continue_workflow_on_failure()


@workflow("invoice", version="1")
def invoice(ctx: WorkflowContext) -> Command:
    """Pay one invoice.

    Input: ``row``, as the file has it, and ``approve_within``, the time an approver has (in JSON: days).
    """
    if ctx.cancellation_request is not None:
        return withdraw(ctx)
    return check(ctx) or match(ctx) or reserve(ctx) or approve(ctx) or pay(ctx) or finish(ctx, Outcome.PAID)


# --- the stages -----------------------------------------------------------------------------------------------------


def check(ctx: WorkflowContext) -> Command | None:
    if not ctx.step_completed("validate"):
        return ctx.schedule_step("validate", steps.validate, ctx.input["row"])
    if problems := facts(ctx)["problems"]:
        return finish(ctx, Outcome.INVALID, "; ".join(problems))
    return milestone(ctx, "valid")


def match(ctx: WorkflowContext) -> Command | None:
    """Load the vendor and the purchase order side by side: they do not need each other."""
    wanted = facts(ctx)
    if not (ctx.step_completed("vendor") and ctx.step_completed("order")):
        vendor_step = ctx.step("vendor", steps.load_vendor, wanted["vendor"])
        order_step = ctx.step("order", steps.load_order, wanted["order"])
        return ctx.schedule_steps([vendor_step, order_step])
    if problem := mismatch(wanted, ctx.step_output("vendor"), ctx.step_output("order")):
        return finish(ctx, Outcome.UNMATCHED, problem)
    return milestone(ctx, "matched")


def reserve(ctx: WorkflowContext) -> Command | None:
    """Hold the money on the order before anybody is asked: an approved invoice can be paid."""
    if not ctx.step_completed("reserve"):
        return ctx.schedule_step("reserve", steps.reserve, facts(ctx))
    if not ctx.step_output("reserve"):
        return finish(ctx, Outcome.NOT_COVERED, f"Order {facts(ctx)['order']} has too little left.")
    return milestone(ctx, "reserved")


def approve(ctx: WorkflowContext) -> Command | None:
    if not ctx.step_completed("rate"):
        return ctx.schedule_step("rate", steps.read_rate, facts(ctx)["currency"])
    if not money.needs_approval(facts(ctx)["amount"], ctx.step_output("rate")):
        return milestone(ctx, "approved")
    if ctx.hook_expired("approval"):
        return finish(ctx, Outcome.NO_ANSWER, "Nobody answered in time.")
    if not ctx.hook_received("approval"):
        return ask(ctx)
    answer = ctx.hook_payload("approval")
    if not answer["approved"]:
        return finish(ctx, Outcome.NOT_APPROVED, f"{answer['by']} said no.")
    return milestone(ctx, "approved")


def ask(ctx: WorkflowContext) -> Command:
    """Open the hook, then mail its link, then wait: the link works from the moment it can be read."""
    if not ctx.step_completed("deadline"):
        return ctx.schedule_step("deadline", steps.approval_deadline, ctx.input["approve_within"])
    until = ctx.step_output("deadline")
    if ctx.hook_created("approval") and not ctx.step_completed("ask"):
        return ctx.schedule_step("ask", steps.ask_approval, {"facts": facts(ctx), "until": until})
    metadata = (
        HookMetadata.human_approval(f"invoice:{facts(ctx)['number']}")
        .with_callback_route(HookCallbackRoute.post(mails.APPROVAL_PATH))
        .with_data("amount", facts(ctx)["amount"])
    )
    return ctx.create_hook("approval", metadata=metadata, expires_at=until)


def pay(ctx: WorkflowContext) -> Command | None:
    error = ctx.step_failed("charge")
    if error is not None:
        return undo(ctx) or finish(ctx, Outcome.UNPAYABLE, error)
    if not ctx.step_completed("charge"):
        return ctx.schedule_step("charge", steps.charge, facts(ctx), retry=CHARGE_RETRY)
    return milestone(ctx, "charged")


# --- the endings ----------------------------------------------------------------------------------------------------


def finish(ctx: WorkflowContext, outcome: Outcome, detail: str = "Thank you.") -> Command:
    """Give back what is held unless it was paid for, tell whom it concerns, and end the run."""
    number = ctx.input["row"]["number"]
    if outcome is not Outcome.PAID and ctx.step_output("reserve") and not ctx.step_completed("release"):
        return ctx.schedule_step("release", steps.release, number)
    if not ctx.step_completed("mail"):
        to = ctx.step_output("vendor")["email"] if outcome is Outcome.PAID else mails.PAYABLES
        result = {"number": number, "outcome": outcome, "to": to, "detail": detail}
        return ctx.schedule_step("mail", steps.send_result, result)
    if outcome is Outcome.UNPAYABLE:
        return ctx.fail(detail)
    return ctx.complete({"outcome": outcome, "detail": detail, "receipt": ctx.step_output("charge")})


def undo(ctx: WorkflowContext, prefix: str = "") -> Command | None:
    """The compensation: void what may have been charged and release the order, side by side."""
    void, release = f"{prefix}void", f"{prefix}release"
    if ctx.step_completed(void) and ctx.step_completed(release):
        return None
    number = ctx.input["row"]["number"]
    return ctx.schedule_steps([ctx.step(void, steps.void, number), ctx.step(release, steps.release, number)])


def withdraw(ctx: WorkflowContext) -> Command:
    """Somebody asked to cancel. What ran until then is cancelled, so cleaning up uses step ids of its own."""
    if ctx.step_scheduled("reserve"):
        return undo(ctx, "withdraw-") or ctx.cancel()
    return ctx.cancel()


# --- small change ---------------------------------------------------------------------------------------------------


def facts(ctx: WorkflowContext) -> dict[str, Any]:
    """The invoice as the first step understood it."""
    checked: dict[str, Any] = ctx.step_output("validate")
    return checked


def milestone(ctx: WorkflowContext, name: str) -> Command | None:
    """Record, once, how far the invoice has come."""
    if ctx.progress(name) is not None:
        return None
    return ctx.record_progress(
        WorkflowProgress(name, MILESTONES.index(name) + 1, len(MILESTONES), f"invoice is {name}")
    )
