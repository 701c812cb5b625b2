from __future__ import annotations

import functools

import pytest

from flow_app import step, workflow
from flow_app.authoring import registry
from flow_app.authoring.registry import Registry, origin_of
from flow_app.errors import ConfigurationError, StepNotRegisteredError, WorkflowNotRegisteredError


def test_a_name_stands_for_one_definition():
    names: Registry[int] = Registry("step", StepNotRegisteredError)
    names.add("a", 1, origin="app.one")
    with pytest.raises(ConfigurationError, match=r"Two steps are named 'a': app\.one and app\.two"):
        names.add("a", 2, origin="app.two")
    assert names.get("a") == 1
    assert names.names() == ["a"]


def test_the_same_function_again_is_a_reload():
    names: Registry[int] = Registry("step", StepNotRegisteredError)
    names.add("a", 1, origin="app.one")
    names.add("a", 2, origin="app.one")
    assert names.get("a") == 2


def test_names_are_listed_in_order():
    names: Registry[int] = Registry("step", StepNotRegisteredError)
    for name in "bca":
        names.add(name, 1, origin="app.one")
    assert names.names() == ["a", "b", "c"]
    assert "b" in names
    assert "d" not in names


@pytest.mark.parametrize(
    ("entries", "missing"),
    [(registry.workflows, WorkflowNotRegisteredError), (registry.steps, StepNotRegisteredError)],
    ids=["workflows", "steps"],
)
def test_an_unknown_name_is_named_by_its_error(entries, missing):
    with pytest.raises(missing) as caught:
        entries.get("no such name")
    assert caught.value.name == "no such name"


def test_what_is_registered_in_an_isolated_block_is_forgotten_even_after_an_error():
    names: Registry[int] = Registry("step", StepNotRegisteredError)
    names.add("kept", 1, origin="app.one")

    def fail_after_registering() -> None:
        with names.isolated():
            names.add("kept", 2, origin="app.one")
            names.add("new", 3, origin="app.one")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_registering()
    assert names.names() == ["kept"]
    assert names.get("kept") == 1


def test_an_origin_is_where_a_function_is_defined():
    function = test_an_origin_is_where_a_function_is_defined
    name = "test_registry.test_an_origin_is_where_a_function_is_defined"
    assert origin_of(function).endswith(f"{name} (line {function.__code__.co_firstlineno})")
    assert origin_of(len) == "builtins.len"


COPIED = """
@{decorator}('copied')
def decide({first}):
    return {first}

@{decorator}('copied')
def decide({first}):
    return {first}, 'pasted'
"""


@pytest.mark.parametrize("decorator", [step, workflow])
def test_a_copy_of_the_same_qualname_is_a_second_definition(decorator):
    code = COPIED.format(decorator=decorator.__name__, first="ctx")
    with (
        registry.workflows.isolated(),
        registry.steps.isolated(),
        pytest.raises(ConfigurationError, match=r"decide \(line 2\) and shop\.workflows\.decide \(line 6\)"),
    ):
        exec(code, {"__name__": "shop.workflows", decorator.__name__: decorator})


@pytest.mark.parametrize("decorator", [step, workflow])
def test_the_same_code_again_is_a_reload(decorator):
    with registry.workflows.isolated(), registry.steps.isolated():
        for _ in range(2):

            @decorator("again")
            @functools.lru_cache
            def decide(ctx): ...
