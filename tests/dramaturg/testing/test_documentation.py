"""The examples of docs/testing.md run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "testing.md"
EXAMPLES = re.findall(
    r"^```python\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs(number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES[number]], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
