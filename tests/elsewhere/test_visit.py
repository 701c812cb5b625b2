from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_faces_in_a_project_that_does_all_otherwise(tmp_path: Path) -> None:
    visit = [sys.executable, "-m", "tests.elsewhere.visit", str(tmp_path)]
    done = subprocess.run(visit, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "all is well", done.stderr
