"""The files of the demo."""

from __future__ import annotations

import csv
from pathlib import Path

HERE = Path(__file__).parent


def read_file(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
