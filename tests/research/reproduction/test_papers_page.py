"""The page of the papers states of every table and figure what is made of it."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "research" / "papers.md"
# The tables and the figures that each paper has.
PRINTED = {
    "ABSEval": (10, 12),
    "Choice-75": (4, 3),
    "DRPE": (1, 7),
    "proScript": (4, 9),
    "SimulBench": (4, 3),
}


def named(text: str) -> list[tuple[str, int]]:
    """The tables and figures of a cell, such as "Table 1, Figures 2 to 4 and 6"."""
    found = []
    for kind, numbers in re.findall(r"(Table|Figure)s? ((?:\d+(?:, | and | to )?)+)", text):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", numbers):
            found += [(kind, number) for number in range(int(first), int(last or first) + 1)]
    return found


def test_every_table_and_figure_has_its_state() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("\n## State\n")[2]
    rows = re.findall(r"^\| (\S+) \| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)[1:]
    rows = [row for row in rows if row[0] in PRINTED]
    assert all(re.match(r"works$|partly: \w|cannot, because \w", state) for *_, state in rows)
    for paper, (tables, figures) in PRINTED.items():
        stated = sorted(one for name, parts, _ in rows if name == paper for one in named(parts))
        everything = [("Figure", one + 1) for one in range(figures)] + [
            ("Table", one + 1) for one in range(tables)
        ]
        assert stated == everything, paper
