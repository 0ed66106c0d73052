"""docs/operate/security.md names the tests that hold its bounds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTION = "\n## What bounds what\n"


def rows() -> list[list[str]]:
    """The cells of each row of the table of bounds."""
    section = (ROOT / "docs/operate/security.md").read_text(encoding="utf-8").partition(SECTION)[2]
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


@pytest.mark.parametrize("cells", rows(), ids=lambda cells: cells[0])
def test_each_bound_names_tests_that_exist(cells: list[str]) -> None:
    _, bound, named = cells
    paths = re.findall(r"`(tests/[^`]+)`", named)
    assert bound
    assert paths
    for path in map(ROOT.joinpath, paths):
        files = [path] if path.suffix else [*path.rglob("test_*.py")]
        assert any(re.search(r"def test_\w+", file.read_text(encoding="utf-8")) for file in files)


def test_each_hostile_test_holds_a_bound() -> None:
    named = " ".join(cells[2] for cells in rows())
    hostile = [path.relative_to(ROOT) for path in (ROOT / "tests/hostile").glob("test_*.py")]
    assert not [path for path in hostile if f"`{path}`" not in named]
