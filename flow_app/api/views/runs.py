"""Runs: which there are, how one stands, and starting one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from django.http import HttpResponseBase
from django.utils.cache import get_conditional_response
from django.utils.translation import gettext as _
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from flow_app.api.filters import RunFilters
from flow_app.api.inputs import FlowStart
from flow_app.api.links import link
from flow_app.api.paging import Newest
from flow_app.api.permissions import START_RUN, VIEW_RUN
from flow_app.api.problems import Refused
from flow_app.api.schema import answer, described, header, problems
from flow_app.api.serializers import FlowRun, FlowRunDetail
from flow_app.api.views.base import FlowView
from flow_app.api.views.parameters import INCLUDE
from flow_app.models import Run
from flow_app.presenting import ends_of, glance, look
from flow_app.presenting.tracebacks import traceback_of

_KEY = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)


class RunView(FlowView):
    """What shows one run."""

    queryset = Run.objects.all()
    serializer_class = FlowRunDetail

    def detail(self, run: Run, *, payloads: bool = False) -> dict[str, Any]:
        """The run by itself, with what it waits for; and what went in, came out and failed, if that is asked for."""
        waiting = look(run)
        context = self.reading(
            waiting={} if waiting is None else {run.pk: waiting},
            payloads=payloads,
            ends=ends_of(run) if payloads else {},
            traceback=traceback_of(run) if payloads else "",
        )
        return dict(FlowRunDetail(run, context=context).data)


class RunList(RunView):
    """Runs, the latest first. To start one, send its workflow and input."""

    permissions = {"GET": [VIEW_RUN], "POST": [START_RUN, VIEW_RUN]}
    input_class = FlowStart
    pagination_class = Newest
    filterset_class = RunFilters
    other_parameters = frozenset()

    @described("runs_list", "Runs, the latest first", responses={200: FlowRun(many=True), **problems(400, 404)})
    def get(self, request: Request, **kwargs: Any) -> Response:
        page = self.paginate_queryset(self.filter_queryset(self.visible_runs())) or []
        context = self.reading(waiting=glance(page))
        return self.get_paginated_response(FlowRun(page, many=True, context=context).data)

    @described(
        "runs_start",
        "Start a run",
        description="With a `run_id` or an `Idempotency-Key`, the same again is the same run.",
        parameters=[header("Idempotency-Key", "The same key is the same run; keys are each user's own.")],
        sent=FlowStart,
        responses={
            201: answer(FlowRunDetail, "Started."),
            200: answer(FlowRunDetail, "Started before, by the same call."),
            **problems(400, 409, 413, 415, 503),
        },
    )
    def post(self, request: Request, **kwargs: Any) -> Response:
        sent = self.sent()
        run_id = sent["run_id"] or self._id_of_key()
        self._refuse_hidden(run_id)
        started = self.commit(
            lambda: self.engine.ensure_started(
                sent["workflow"],
                sent["input"],
                run_id=run_id,
                subject=sent["subject"],
                labels=sent["labels"],
                actor=self.actor,
            )
        )
        run = Run.objects.using(self.using).with_id(started.run_id).get()
        if not started.is_new:
            _refuse_other_tags(run, sent)
        response = Response(self.detail(run), status=201 if started.is_new else 200)
        response["Location"] = link(self.request, "run", run_id=run.run_id)
        return response

    def _id_of_key(self) -> str | None:
        key = self.request.headers.get("Idempotency-Key")
        if key is None:
            return None
        if not _KEY.fullmatch(key):
            raise ValidationError({"Idempotency-Key": [_("Send 1 to 255 printable ASCII characters without spaces.")]})
        return "key-" + hashlib.sha256(f"{self.request.user.pk}\0{key}".encode()).hexdigest()[:40]

    def _refuse_hidden(self, run_id: str | None) -> None:
        """An id that a run has which the caller may not see: it is taken, and nothing else is told."""
        if run_id is None or not Run.objects.using(self.using).with_id(run_id).exists():
            return
        if not self.visible_runs().with_id(run_id).exists():
            raise Refused(409, "run_conflict", _("This run id is taken."))


class RunDetail(RunView):
    """One run."""

    permissions = {"GET": [VIEW_RUN]}

    @described(
        "runs_retrieve",
        "One run",
        parameters=[INCLUDE, header("If-None-Match", "The ETag of an earlier answer; 304 if nothing has changed.")],
        responses={200: FlowRunDetail, 304: answer(None, "As it was."), **problems(400, 404)},
    )
    def get(self, request: Request, **kwargs: Any) -> HttpResponseBase:
        data = self.detail(self.find_run(), payloads=self.shows_payloads)
        etag = 'W/"' + hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()[:32] + '"'
        response = Response(data, headers={"ETag": etag})
        return get_conditional_response(request, etag=etag, response=response) or response


def _refuse_other_tags(run: Run, sent: Mapping[str, Any]) -> None:
    """The engine compares workflow and input. What is said of the run besides must not be lost without a word."""
    if sent["subject"] not in ("", run.subject) or sent["labels"] not in ({}, json.loads(run.labels)):
        raise Refused(409, "run_conflict", _("This run has been started with another subject or other labels."))
