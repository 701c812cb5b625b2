from __future__ import annotations

from collections.abc import Iterator

import pytest

from flow_app.authoring import registry
from tests.admin.acts import flows


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with registry.workflows.isolated(), registry.steps.isolated():
        flows.register()
        flows.TROUBLE.update(stuck=True, shaky=True)
        yield
