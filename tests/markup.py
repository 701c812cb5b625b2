"""Code that has markup wherever code can have some."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any


def raising(markup: str) -> Callable[[Any], Any]:
    """A function of one argument that raises: markup in the message, in the file's name and in the line of source."""
    file = f"{markup}.py"
    source = f"def evil(ctx):\n    raise ValueError({markup!r})  # {markup}</pre></details>\n"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    code: dict[str, Any] = {}
    exec(compile(source, file, "exec"), code)
    found: Callable[[Any], Any] = code["evil"]
    return found
