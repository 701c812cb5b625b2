from __future__ import annotations

import pytest

from flow_app.core.spec import RuntimeBuildCompatibility, RuntimeSpec, WorkflowSpec
from flow_app.errors import InvalidRuntimeBuildIdError, InvalidWorkflowError

NATIVE = RuntimeSpec("native_ts", "flows/invoice.ts", "invoice")


def test_a_new_run_belongs_to_the_python_runtime():
    assert WorkflowSpec("invoice", "3").to_tree() == {
        "name": "invoice",
        "version": "3",
        "runtime": {"kind": "python", "entrypoint": "invoice", "export_name": "run"},
    }


@pytest.mark.parametrize(
    "spec",
    [WorkflowSpec("invoice"), WorkflowSpec("invoice", "2", NATIVE), WorkflowSpec("invoice", "2", NATIVE, "build-1")],
)
def test_a_spec_is_read_back(spec):
    assert WorkflowSpec.from_tree(spec.to_tree()) == spec


def test_scenario_110_a_spec_without_a_build_reads_as_unpinned_and_writes_no_key():
    tree = {"name": "a", "version": "1", "runtime": {"kind": "native_ts", "entrypoint": "a.ts", "export_name": "run"}}
    spec = WorkflowSpec.from_tree(tree)
    assert spec.runtime_build_id is None
    assert spec.to_tree() == tree


@pytest.mark.parametrize("blank", ["", " \t", None, 7, "x" * 201, "a\nb", "a\x00"], ids=repr)
@pytest.mark.parametrize("part", ["name", "version", "kind", "entrypoint", "export_name"])
def test_scenario_007_a_blank_or_unprintable_part_is_refused(part, blank):
    parts = {"name": "invoice", "version": "1", "kind": "native_ts", "entrypoint": "a.ts", "export_name": "run"}
    parts[part] = blank
    runtime = RuntimeSpec(parts["kind"], parts["entrypoint"], parts["export_name"])
    with pytest.raises(InvalidWorkflowError, match=part):
        WorkflowSpec(parts["name"], parts["version"], runtime).check()


def test_a_good_spec_is_accepted():
    WorkflowSpec("invoice", "2026-05", NATIVE, "build-1").check()
    WorkflowSpec("Rechnung prüfen", "x" * 200).check()


def test_scenario_110_pinning_checks_the_build_id():
    assert WorkflowSpec("invoice").with_runtime_build("v1").runtime_build_id == "v1"
    assert WorkflowSpec("invoice", "2", NATIVE).with_runtime_build("v1") == WorkflowSpec("invoice", "2", NATIVE, "v1")
    with pytest.raises(InvalidRuntimeBuildIdError):
        WorkflowSpec("invoice").with_runtime_build("v1 ")
    with pytest.raises(InvalidRuntimeBuildIdError):
        WorkflowSpec("invoice", runtime_build_id="").check()


@pytest.mark.parametrize(
    ("builds", "build", "supported"),
    [
        (RuntimeBuildCompatibility("v2"), "v2", True),
        (RuntimeBuildCompatibility("v2"), "v1", False),
        (RuntimeBuildCompatibility("v2"), None, False),
        (RuntimeBuildCompatibility("v2").with_compatible(["v1", "v0"]), "v1", True),
        (RuntimeBuildCompatibility("v2").with_compatible(["v1"]), "v3", False),
        (RuntimeBuildCompatibility("v2").with_compatible(["v1"]), None, False),
        (RuntimeBuildCompatibility("v2").accept_unpinned(), None, True),
        (RuntimeBuildCompatibility("v2").accept_unpinned(), "v1", False),
        (RuntimeBuildCompatibility("v2").accept_unpinned().with_compatible(["v1"]), None, True),
        (RuntimeBuildCompatibility("v2").with_compatible(["v1"]).accept_unpinned(), "v1", True),
    ],
)
def test_a_process_runs_its_own_build_and_those_it_lists(builds, build, supported):
    assert builds.supports(build) is supported


def test_compatible_builds_add_up():
    builds = RuntimeBuildCompatibility("v3").with_compatible(["v1"]).with_compatible(["v2"])
    assert builds.compatible == {"v1", "v2"}


@pytest.mark.parametrize("build", ["", "a b", None, "-a"])
def test_a_malformed_build_is_refused_wherever_it_is_named(build):
    with pytest.raises(InvalidRuntimeBuildIdError):
        RuntimeBuildCompatibility(build)
    with pytest.raises(InvalidRuntimeBuildIdError):
        RuntimeBuildCompatibility("v1").with_compatible([build])
