"""What a run is a run of, and which code may run it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flow_app.core.identifiers import MAX_ID, check_build_id
from flow_app.core.payload import Json
from flow_app.errors import InvalidWorkflowError

PYTHON = "python"


@dataclass(frozen=True, slots=True)
class RuntimeSpec:
    """Which kind of runtime holds the code, and where in it: new runs are ``python``, imported ones keep their kind."""

    kind: str
    entrypoint: str
    export_name: str


def _python_runtime(name: str) -> RuntimeSpec:
    return RuntimeSpec(PYTHON, name, "run")


@dataclass(frozen=True, slots=True)
class WorkflowSpec:
    """Name, version and runtime of a workflow, and the build a run of it is pinned to, if any."""

    name: str
    version: str = "1"
    runtime: RuntimeSpec | None = None  # None: the Python function registered under ``name``
    runtime_build_id: str | None = None

    def with_runtime_build(self, build_id: str) -> WorkflowSpec:
        """The same spec pinned to a build. Raises InvalidRuntimeBuildIdError."""
        return WorkflowSpec(self.name, self.version, self.runtime, check_build_id(build_id))

    @property
    def resolved_runtime(self) -> RuntimeSpec:
        return self.runtime or _python_runtime(self.name)

    def check(self) -> None:
        """Raise InvalidWorkflowError for a blank or too long part, InvalidRuntimeBuildIdError for a bad build id."""
        runtime = self.resolved_runtime
        parts = {
            "name": self.name,
            "version": self.version,
            "runtime.kind": runtime.kind,
            "runtime.entrypoint": runtime.entrypoint,
            "runtime.export_name": runtime.export_name,
        }
        for part, value in parts.items():
            if not isinstance(value, str) or not value.strip():
                raise InvalidWorkflowError(f"The workflow's {part} must be a non-blank string, not {value!r}.")
            if len(value) > MAX_ID or not value.isprintable():
                raise InvalidWorkflowError(
                    f"The workflow's {part} {value!r} must be printable and at most {MAX_ID} characters long."
                )
        if self.runtime_build_id is not None:
            check_build_id(self.runtime_build_id)

    def to_tree(self) -> dict[str, Json]:
        runtime = self.resolved_runtime
        tree: dict[str, Json] = {
            "name": self.name,
            "version": self.version,
            "runtime": {
                "kind": runtime.kind,
                "entrypoint": runtime.entrypoint,
                "export_name": runtime.export_name,
            },
        }
        if self.runtime_build_id is not None:
            tree["runtime_build_id"] = self.runtime_build_id
        return tree

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> WorkflowSpec:
        name = tree["name"]
        runtime = RuntimeSpec(**{part: tree["runtime"][part] for part in ("kind", "entrypoint", "export_name")})
        return cls(
            name=name,
            version=tree["version"],
            runtime=None if runtime == _python_runtime(name) else runtime,
            runtime_build_id=tree.get("runtime_build_id"),
        )


@dataclass(frozen=True, slots=True)
class RuntimeBuildCompatibility:
    """Which builds this process may run: its own, those added, and unpinned runs only when said so."""

    current: str
    compatible: frozenset[str] = field(default_factory=frozenset)
    unpinned: bool = False

    def __post_init__(self) -> None:
        check_build_id(self.current)
        for build in self.compatible:
            check_build_id(build)

    def with_compatible(self, builds: Iterable[str]) -> RuntimeBuildCompatibility:
        return RuntimeBuildCompatibility(self.current, self.compatible | frozenset(builds), self.unpinned)

    def accept_unpinned(self) -> RuntimeBuildCompatibility:
        return RuntimeBuildCompatibility(self.current, self.compatible, unpinned=True)

    def supports(self, build: str | None) -> bool:
        """May code of this process run a run pinned to ``build`` (None: not pinned)?"""
        if build is None:
            return self.unpinned
        return build == self.current or build in self.compatible
