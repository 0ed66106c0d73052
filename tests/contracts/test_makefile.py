"""What the targets of the Makefile need."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_wheel_needs_no_development_environment(tmp_path: Path) -> None:
    planned = subprocess.run(
        ["make", "--dry-run", "wheel", f"VENV={tmp_path}/absent"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pip wheel" in planned.stdout
    assert str(tmp_path) not in planned.stdout, "it makes or uses the environment of development"
