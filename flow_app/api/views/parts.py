"""What belongs to a run: its events, what it waits for, its hooks, progress and links."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef
from django.utils.translation import gettext as _
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from flow_app.api.inputs import FlowChildInput, FlowProgressInput
from flow_app.api.paging import BySequence, Oldest
from flow_app.api.permissions import CHANGE_RUN, VIEW_HOOK, VIEW_RUN
from flow_app.api.schema import answer, described, problems
from flow_app.api.serializers import FlowChildOperation, FlowEvent, FlowHookDetail, FlowProgress, FlowSuspension
from flow_app.api.views.base import FlowView
from flow_app.api.views.parameters import AFTER, INCLUDE
from flow_app.core.snapshot import HookStatus, WaitStatus, WorkflowRunSnapshot
from flow_app.errors import RunNotFoundError
from flow_app.models import ChildOperation, Event, Hook, Progress

_WRITES = problems(400, 404, 409, 413, 415, 503)


class RunEvents(FlowView):
    """The history of a run, in its order."""

    permissions = {"GET": [VIEW_RUN]}
    queryset = Event.objects.all()
    serializer_class = FlowEvent
    pagination_class = BySequence
    other_parameters = frozenset({"include", "after"})

    @described(
        "runs_events_list",
        "The history of a run",
        parameters=[INCLUDE, AFTER],
        responses={200: FlowEvent(many=True), **problems(400, 404)},
    )
    def get(self, request: Request, **kwargs: Any) -> Response:
        events = self.find_run().events.after(self._after())
        return self.page_of(events if self.shows_payloads else events.defer("payload"), FlowEvent)

    def _after(self) -> int:
        text = self.request.query_params.get("after", "0")
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise ValidationError({"after": [_("Send the number of an event.")]}, code="invalid")
        return int(text)


class RunSuspensions(FlowView):
    """What a run waits for: timers, hooks, delayed retries."""

    permissions = {"GET": [VIEW_RUN]}
    queryset = Event.objects.none()
    serializer_class = FlowSuspension
    pagination_class = None
    filter_backends = ()

    @described(
        "runs_suspensions_list",
        "What a run waits for",
        responses={200: FlowSuspension(many=True), **problems(404, 503)},
    )
    def get(self, request: Request, **kwargs: Any) -> Response:
        snapshot = self.engine.snapshot(self.find_run().run_id)
        now = self.engine.store.clock.now()
        rows = [
            {"kind": kind, "subject_id": subject, "due_at": due, "is_due": due is not None and due <= now}
            for kind, subject, due in ([] if snapshot.status.is_terminal else _open(snapshot))
        ]
        return Response(FlowSuspension(rows, many=True).data)


def _open(snapshot: WorkflowRunSnapshot) -> Iterator[tuple[str, str, datetime | None]]:
    for wait in snapshot.waits.values():
        if wait.status is WaitStatus.WAITING:
            yield "wait", wait.wait_id, wait.resume_at
    for hook in snapshot.hooks.values():
        if hook.status is HookStatus.ACTIVE:
            yield "hook", hook.hook_id, hook.expires_at
    for step in snapshot.steps.values():
        if step.retry_after is not None:
            yield "retry", step.step_id, step.retry_after


class RunHooks(FlowView):
    """The hooks of a run, open and closed."""

    permissions = {"GET": [VIEW_RUN, VIEW_HOOK]}
    queryset = Hook.objects.all()
    serializer_class = FlowHookDetail
    pagination_class = Oldest

    @described(
        "runs_hooks_list",
        "The hooks of a run",
        parameters=[INCLUDE],
        responses={200: FlowHookDetail(many=True), **problems(400, 404)},
    )
    def get(self, request: Request, **kwargs: Any) -> Response:
        hooks = self.find_run().hooks.with_runs()
        return self.page_of(hooks if self.shows_payloads else hooks.defer("received"), FlowHookDetail)


class RunProgress(FlowView):
    """How far a run has come. To record progress from outside, send it."""

    permissions = {"GET": [VIEW_RUN], "POST": [CHANGE_RUN, VIEW_RUN]}
    queryset = Progress.objects.all()
    serializer_class = FlowProgress
    input_class = FlowProgressInput
    pagination_class = Oldest

    @described(
        "runs_progress_list",
        "The progress of a run",
        parameters=[INCLUDE],
        responses={200: FlowProgress(many=True), **problems(400, 404)},
    )
    def get(self, request: Request, **kwargs: Any) -> Response:
        return self.page_of(self.find_run().progress_rows.all(), FlowProgress)

    @described(
        "runs_progress_record",
        "Record progress from outside",
        sent=FlowProgressInput,
        responses={
            201: answer(FlowProgress, "Recorded."),
            200: answer(FlowProgress, "Recorded before, just so."),
            **_WRITES,
        },
    )
    def post(self, request: Request, **kwargs: Any) -> Response:
        run, item = self.find_run(), self.sent()["progress"]
        is_new = self.commit(lambda: self.engine.record_progress(run.run_id, item, actor=self.actor))
        row = run.progress_rows.with_id(item.progress_id).get()
        return Response(dict(FlowProgress(row, context=self.reading()).data), status=201 if is_new else 200)


class RunChildren(FlowView):
    """Child tasks of other systems that a run is linked with. To link one, send it."""

    permissions = {"GET": [VIEW_RUN], "POST": [CHANGE_RUN, VIEW_RUN]}
    queryset = ChildOperation.objects.all()
    serializer_class = FlowChildOperation
    input_class = FlowChildInput
    pagination_class = Oldest

    @described(
        "runs_children_list",
        "The child operations of a run",
        parameters=[INCLUDE],
        responses={200: FlowChildOperation(many=True), **problems(400, 404)},
    )
    def get(self, request: Request, **kwargs: Any) -> Response:
        target = self.visible_runs().order_by().filter(run_key=OuterRef("flow_run_key"))
        links = self.find_run().child_operations.annotate(shows_target=Exists(target))
        return self.page_of(links, FlowChildOperation)

    @described(
        "runs_children_link",
        "Link a child operation",
        sent=FlowChildInput,
        responses={
            201: answer(FlowChildOperation, "Linked."),
            200: answer(FlowChildOperation, "Linked before, just so."),
            **_WRITES,
        },
    )
    def post(self, request: Request, **kwargs: Any) -> Response:
        run, child = self.find_run(), self.sent()["child"]
        self._check_target(child.flow_run_id)
        try:
            is_new = self.commit(lambda: self.engine.link_child_operation(run.run_id, child, actor=self.actor))
        except RunNotFoundError as error:
            if error.run_id == run.run_id:
                raise
            raise self._no_target() from None
        row = run.child_operations.with_id(child.reference_id).get()
        context = self.reading(shows_target=True)  # it was looked up above
        return Response(dict(FlowChildOperation(row, context=context).data), status=201 if is_new else 200)

    def _check_target(self, run_id: str | None) -> None:
        """A run that the caller may not see is as good as none."""
        if run_id is not None and not self.visible_runs().with_id(run_id).exists():
            raise self._no_target()

    @staticmethod
    def _no_target() -> ValidationError:
        return ValidationError({"flow_run_id": [_("There is no such run.")]}, code="run_not_found")
