"""What may be done to a run, a verb each."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from flow_app.api.inputs import FlowNothing, FlowReason, FlowTermination
from flow_app.api.permissions import CANCEL_RUN, OPERATE_RUN, TERMINATE_RUN, VIEW_RUN
from flow_app.api.schema import answer, described, problems
from flow_app.api.serializers import FlowRunDetail
from flow_app.api.views.runs import RunView
from flow_app.core.snapshot import RunStatus
from flow_app.models import Run

_REFUSALS = problems(400, 404, 409, 413, 415, 503)
_DONE = {200: answer(FlowRunDetail, "The run, as it then is."), **_REFUSALS}
_ASKED = {202: answer(FlowRunDetail, "Taken; it happens by and by."), **_DONE}


class RunVerb(RunView):
    """Does something to one run, and answers with the run as it then is."""

    def done(self, run: Run, *, is_asked: bool = False) -> Response:
        """200, or 202 when ``is_asked`` and the run has not ended yet."""
        run.refresh_from_db()
        still_to_come = is_asked and not RunStatus(run.status).is_terminal
        return Response(self.detail(run), status=202 if still_to_come else 200)


class RunCancel(RunVerb):
    """Ask a run to stop. It may clean up first; asking again with the same reason changes nothing."""

    permissions = {"POST": [CANCEL_RUN, VIEW_RUN]}
    input_class = FlowReason

    @described("runs_cancel", "Ask a run to stop", sent=FlowReason, responses=_ASKED)
    def post(self, request: Request, **kwargs: Any) -> Response:
        run, reason = self.find_run(), self.sent()["reason"]
        self.commit(lambda: self.engine.request_cancellation(run.run_id, reason, actor=self.actor))
        return self.done(run, is_asked=True)


class RunForceCancel(RunVerb):
    """End a run as cancelled at once, without clean-up."""

    permissions = {"POST": [TERMINATE_RUN, VIEW_RUN]}
    input_class = FlowReason

    @described("runs_force_cancel", "Cancel a run without clean-up", sent=FlowReason, responses=_DONE)
    def post(self, request: Request, **kwargs: Any) -> Response:
        run, reason = self.find_run(), self.sent()["reason"]
        self.commit(lambda: self.engine.force_cancel(run.run_id, reason, actor=self.actor))
        return self.done(run)


class RunTerminate(RunVerb):
    """End a run as failed at once: it took too long, or its host goes away for good."""

    permissions = {"POST": [TERMINATE_RUN, VIEW_RUN]}
    input_class = FlowTermination

    @described("runs_terminate", "End a run as failed", sent=FlowTermination, responses=_DONE)
    def post(self, request: Request, **kwargs: Any) -> Response:
        run, sent = self.find_run(), self.sent()
        deadline: datetime | None = sent["deadline"]
        if deadline is not None and sent["cause"] == "timeout":
            self.commit(
                lambda: self.engine.terminate_for_timeout(run.run_id, deadline, sent["reason"], actor=self.actor)
            )
        else:
            self.commit(lambda: self.engine.terminate_for_host_shutdown(run.run_id, sent["reason"], actor=self.actor))
        return self.done(run)


class RunOperation(RunVerb):
    """What operators do."""

    permissions = {"POST": [OPERATE_RUN, VIEW_RUN]}
    input_class = FlowNothing


class RunPause(RunOperation):
    """Put a run to sleep; what arrives is kept."""

    @described("runs_pause", "Put a run to sleep", responses=_DONE)
    def post(self, request: Request, **kwargs: Any) -> Response:
        run = self.find_run()
        self.commit(lambda: self.engine.pause(run.run_id, actor=self.actor))
        return self.done(run)


class RunUnpause(RunOperation):
    """Let a paused run go on."""

    @described("runs_unpause", "Let a paused run go on", responses=_ASKED)
    def post(self, request: Request, **kwargs: Any) -> Response:
        run = self.find_run()
        self.commit(lambda: self.engine.unpause(run.run_id, actor=self.actor))
        return self.done(run, is_asked=True)


class RunNow(RunOperation):
    """Have a run looked at now, blocked or waiting; timers that are not due stay."""

    @described("runs_run_now", "Have a run looked at now", responses=_ASKED)
    def post(self, request: Request, **kwargs: Any) -> Response:
        run = self.find_run()
        self.commit(lambda: self.engine.run_now(run.run_id, actor=self.actor))
        return self.done(run, is_asked=True)
