from __future__ import annotations

import re
import unittest
from pathlib import Path
from typing import Any

import pytest

from flow_app.authoring import registry

_README = Path(__file__).parents[2] / "README.md"


def _python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", _README.read_text(), flags=re.DOTALL)


@pytest.mark.django_db(transaction=True)
def test_the_readmes_example_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    workflows, use, *_ = _python_blocks()
    with registry.workflows.isolated(), registry.steps.isolated():
        namespace: dict[str, object] = {"__name__": "shop.workflows"}
        exec(workflows, namespace)  # our own README
        exec(use, namespace)
    assert "hook_received" in capsys.readouterr().out


@pytest.mark.django_db
def test_the_readmes_test_case_passes() -> None:
    workflows, *_, testcase = _python_blocks()
    with registry.workflows.isolated(), registry.steps.isolated():
        namespace: dict[str, Any] = {"__name__": "shop.workflows"}
        exec(workflows, namespace)
        exec(testcase, namespace)
        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(namespace["InvoiceTest"]).run(result)
    assert result.testsRun == 1
    assert result.wasSuccessful(), result.errors + result.failures
