from __future__ import annotations

import re
from pathlib import Path

import pytest

from flow_app.authoring import registry

_README = Path(__file__).parents[2] / "README.md"


def _python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", _README.read_text(), flags=re.DOTALL)


@pytest.mark.django_db(transaction=True)
def test_the_readmes_example_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    workflows, use = _python_blocks()[:2]
    with registry.workflows.isolated(), registry.steps.isolated():
        namespace: dict[str, object] = {"__name__": "shop.workflows"}
        exec(workflows, namespace)  # our own README
        exec(use, namespace)
    assert "hook_received" in capsys.readouterr().out
