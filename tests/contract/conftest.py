from __future__ import annotations

from tests.api.conftest import _registered  # noqa: F401 - the same workflows
