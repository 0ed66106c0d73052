"""The printed numbers, against the text of the papers, in a folder beside the data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dramaturg_research.reproduction import choice75, drpe, simulbench
from dramaturg_research.reproduction.abseval import printed as abseval
from dramaturg_research.reproduction.proscript import printed as proscript

pytestmark = pytest.mark.data

ORDINALS = {"1": "st", "2": "nd", "3": "rd"}


def rows_of_abseval() -> Iterator[str]:
    yield from (" ".join(row) for row in (*abseval.TABLE_2, *abseval.TABLE_3, *abseval.TABLE_4))
    for model, line in abseval.TABLE_5.items():
        rank, size, *rates = line.split()
        name = model.removesuffix(f" {size}")
        yield f"{name} {rank}{ORDINALS.get(rank, 'th')} {size} {' '.join(rates)}"
    yield f"ALL - - {abseval.ALL}"


def rows_of_choice75() -> Iterator[str]:
    yield from (f"{choice75._name(form)} {' '.join(row)}" for form, row in choice75._TABLE_1.items())
    for (_, prompt), line in choice75._TABLE_3.items():
        numbers = " ".join(f"0{number}" for number in line.split())
        yield f"{'Average' if prompt == 'average' else prompt} {numbers}"


def rows_of_drpe() -> Iterator[str]:
    yield from (f"{name} {' '.join(row)}" for name, row in drpe._TABLE_1.items())


def rows_of_proscript() -> Iterator[str]:
    yield from (f"{model} {line}" for model, line in proscript.TABLE_1.items())
    yield from (line for rows in proscript.TABLE_2.values() for line in rows.values())
    yield from (line for _, _, line in proscript.TABLE_4.values())
    # The figure's text has its bars one colour after the other.
    yield " ".join(proscript.FIGURE_7)
    yield from (" ".join(column) for column in zip(*map(str.split, proscript.FIGURE_7.values()), strict=True))


def rows_of_simulbench() -> Iterator[str]:
    yield from (" ".join(row) for row in simulbench._TABLE_1)
    yield from simulbench._TABLE_2.values()
    yield from (f"{name} {' '.join(row)}" for name, row in simulbench._TABLE_3.items())
    yield from (f"{model} {line}" for model, line in simulbench._TABLE_4.items())


@pytest.mark.parametrize(
    ("paper", "rows"),
    [
        ("abseval", rows_of_abseval),
        ("choice75", rows_of_choice75),
        ("drpe", rows_of_drpe),
        ("proscript", rows_of_proscript),
        ("simulbench", rows_of_simulbench),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_printed_rows_are_those_of_the_paper(
    data_dir: Path, paper: str, rows: Callable[[], Iterator[str]]
) -> None:
    file = data_dir.parent / "papers" / f"{paper}.txt"
    if not file.exists():
        pytest.skip(f"there is no text of {paper} beside the data")
    text = " ".join(re.sub(r"</?b>|[|*]", " ", file.read_text(encoding="utf-8")).split())
    assert not [row for row in rows() if row not in text]
