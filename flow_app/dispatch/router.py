"""One dispatcher per build: a run goes only where its code is."""

from __future__ import annotations

from flow_app.core.identifiers import check_build_id
from flow_app.core.ports import FlowTaskDispatcher, SharedWorkers, StepDispatcher
from flow_app.core.tasks import FlowTask, RunStep
from flow_app.engine import FlowEngine
from flow_app.errors import ConfigurationError, InvalidTransitionError, RuntimeBuildRouteNotFoundError


class RuntimeBuildTaskRouter:
    """Routes tasks by the build a run is pinned to; unpinned runs need a route of their own."""

    def __init__(self) -> None:
        self._routes: dict[str | None, FlowTaskDispatcher] = {}

    def with_route(self, build: str, dispatcher: FlowTaskDispatcher) -> RuntimeBuildTaskRouter:
        """Register the route of a build. Raises ConfigurationError for a second one, InvalidRuntimeBuildIdError."""
        return self._register(check_build_id(build), dispatcher)

    def with_unpinned_route(self, dispatcher: FlowTaskDispatcher) -> RuntimeBuildTaskRouter:
        """Register the route of unpinned runs. Raises ConfigurationError for a second one."""
        return self._register(None, dispatcher)

    def _register(self, build: str | None, dispatcher: FlowTaskDispatcher) -> RuntimeBuildTaskRouter:
        if build in self._routes:
            what = "unpinned runs" if build is None else f"build {build!r}"
            raise ConfigurationError(f"There are two routes for {what}. Register one of them.")
        self._routes[build] = dispatcher
        return self

    def has_route(self, build: str | None) -> bool:
        return build in self._routes

    def dispatch(self, task: FlowTask) -> None:
        """Dispatch without a build: to the unpinned route. Raises RuntimeBuildRouteNotFoundError."""
        self.dispatch_for_build(None, task)

    def dispatch_for_build(self, build: str | None, task: FlowTask) -> None:
        self._route(build).dispatch(task)

    def dispatch_step(self, step: RunStep, *, build: str | None, queue: str | None) -> None:
        """Send a step that travels by its run's route; one that sends no steps runs it where it handles tasks."""
        route: object = self._route(build)
        if isinstance(route, StepDispatcher):
            route.dispatch_step(step, build=build, queue=queue)
        else:
            self.dispatch_for_build(build, step)

    def same_workers(self, run_id: str, build: str | None) -> bool:
        """Do drives and steps of this build go to the same workers, as its route says?"""
        route: object = self._routes.get(build)
        return isinstance(route, SharedWorkers) and route.same_workers(run_id, build)

    def _route(self, build: str | None) -> FlowTaskDispatcher:
        route = self._routes.get(build)
        if route is None:
            raise RuntimeBuildRouteNotFoundError(build)
        return route

    def dispatch_for_run(self, engine: FlowEngine, run_id: str, task: FlowTask) -> None:
        """Dispatch a task of one run to the route of its recorded build.

        Raises InvalidTransitionError for a task of another run or of no single run, RunNotFoundError,
        RuntimeBuildRouteNotFoundError.
        """
        if task.explicit_run_id is None:
            raise InvalidTransitionError(f"a {task.type} task is not for one run, so no build routes it")
        if task.explicit_run_id != run_id:
            raise InvalidTransitionError(f"the task is for run {task.explicit_run_id!r}, not for {run_id!r}")
        self.dispatch_for_build(engine.runtime_build_id(run_id), task)
