"""Answers are checked against the JSON Schema that their hook declares, before the engine hears of them."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from itertools import islice
from typing import Any

from flow_app.answering.patience import patient
from flow_app.core.payload import clean_text
from flow_app.errors import ConfigurationError, HookPayloadError, HookSchemaError

_SHOWN = 20
#: Problems that are looked for: an answer of a megabyte may have as many as it has items.
_FOUND = 200
_LINE = 300


def check_answer(hook_id: str, metadata: Any, payload: Any) -> None:
    """Check an answer, plain JSON, against the ``payload_schema`` in the hook's metadata, if there is one.

    Raises HookPayloadError when it does not fit, HookSchemaError when nothing can: the schema is none, or refers to a
    document elsewhere, which is never fetched; and ConfigurationError when the ``jsonschema`` package is missing.
    """
    schema = metadata.get("payload_schema") if isinstance(metadata, dict) else None
    if schema is None:
        return
    problems = [_problem(error) for error in _errors(hook_id, schema, payload)]
    if problems:
        raise HookPayloadError(hook_id, sorted(problems)[:_SHOWN])


def _errors(hook_id: str, schema: Any, payload: Any) -> Iterable[Any]:
    try:
        validators = import_module("jsonschema.validators")
        referencing = import_module("referencing")
    except ImportError as error:
        raise ConfigurationError("A hook declares a payload schema: pip install 'flow-app[api]' checks it.") from error
    try:
        kind = validators.validator_for(schema, default=validators.Draft202012Validator)
        kind.check_schema(schema)
        # A registry of its own: the default one would fetch what "$ref" names from the network.
        checker = patient(kind)(schema, registry=referencing.Registry(), format_checker=kind.FORMAT_CHECKER)
        return list(islice(checker.iter_errors(payload), _FOUND))
    except Exception as error:  # a schema may be wrong in as many ways as there are keywords
        raise HookSchemaError(hook_id, clean_text(str(error).partition("\n")[0], limit=_LINE)) from error


def _problem(error: Any) -> tuple[str, str]:
    """The JSON pointer to what is wrong, and the text. A missing property is pointed at, not the object around it."""
    path = [str(part) for part in error.absolute_path]
    if error.validator == "required":
        path += [name for name in error.validator_value if name not in error.instance and repr(name) in error.message]
    pointer = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)
    return clean_text(pointer, limit=_LINE), clean_text(error.message, limit=_LINE)
