"""What an act is: who may do it, when it makes sense, what it asks first, and the engine's verb behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from django import forms
from django.http import HttpRequest
from django.utils.functional import Promise

from flow_app.engine import FlowEngine
from flow_app.models import Hook, Run

Target: TypeAlias = Run | Hook
Text: TypeAlias = str | Promise


class ActForm(forms.Form):
    """What an act asks for before it is done. ``target`` is the run or hook it is about; None for many at once."""

    def __init__(self, *args: Any, target: Target | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.target = target


@dataclass(frozen=True, slots=True)
class Deed:
    """An act about to be done: by whom, to what, with what the form says."""

    engine: FlowEngine
    actor: str
    target: Target
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        return run_of(self.target).run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One thing that people may do to a run or a hook.

    ``perform`` calls one verb of the engine and tells whether this call did something; FlowErrors go through.
    ``done`` and ``nothing`` say what came of it. ``harmful``: shown as a warning. ``in_one_click``: its button posts.
    """

    name: str
    permission: str
    label: Text
    question: Text
    done: Text
    nothing: Text
    is_open: Callable[[Any], bool]
    perform: Callable[[Deed], bool]
    form: type[ActForm] = ActForm
    harmful: bool = False
    in_one_click: bool = False

    def is_open_for(self, target: Target) -> bool:
        """Does it make sense now? The engine decides anyway, when it is done."""
        return self.is_open(target)


def actor_of(request: HttpRequest) -> str:
    """The user's natural name, as text: a project may have its users known by a number."""
    return str(request.user.get_username())


def run_of(target: Target) -> Run:
    return target.run if isinstance(target, Hook) else target
