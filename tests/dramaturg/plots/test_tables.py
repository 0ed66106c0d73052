from __future__ import annotations

import csv
import io

import pytest

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.plots import tables
from dramaturg.plots.tables import (
    Column,
    Row,
    Table,
    average,
    count,
    estimate,
    number,
    probability,
    words,
)


def example() -> Table:
    return Table(
        "table-9",
        "Table 9: A & B",
        [Column("Model"), Column("Easy", "Level"), Column("Hard", "Level")],
        [
            Row([words("=cmd|x_1"), number(0.666666, 2, "0.70"), number(None, 2)]),
            Row([words("Average"), count(3), estimate(Estimate(value=-0.5), 1)], ruled=True),
        ],
        notes=["50 % of all."],
    )


def test_markdown_has_a_line_for_each_row_and_nothing_in_it_is_markup() -> None:
    lines = tables.markdown(example()).splitlines()
    assert lines[:7] == [
        "### Table 9: A & B",
        "",
        "| Model | Level: Easy | Level: Hard |",
        "| --- | ---: | ---: |",
        r"| =cmd\|x\_1 | 0.67 [0.70] | – |",
        "| Average | 3 | -0.5 |",
        "",
    ]
    assert tables.PRINTED_NOTE in lines
    assert "50 % of all." in lines


def test_csv_has_full_precision_printed_numbers_apart_and_no_formula() -> None:
    rows = list(csv.reader(io.StringIO(tables.csv(example()), newline="")))
    assert rows == [
        ["Model", "Level: Easy", "Level: Easy (paper)", "Level: Hard"],
        ["'=cmd|x_1", "0.666666", "0.70", ""],
        ["Average", "3", "", "-0.5"],
    ]


def test_latex_has_the_rules_of_booktabs_and_shared_heads() -> None:
    lines = tables.latex(example()).splitlines()
    assert r"\begin{tabular}{lrr}" in lines
    assert r" & \multicolumn{2}{c}{Level} \\" in lines
    assert r"\cmidrule(lr){2-3}" in lines
    assert r"=cmd|x\_1 & 0.67 [0.70] & -- \\" in lines
    assert lines.index(r"\toprule") < lines.index(r"\midrule") < lines.index(r"\bottomrule")
    assert lines.count(r"\midrule") == 2
    assert any(line.startswith(r"\caption{Table 9: A \& B. ") and r"50 \% of all" in line for line in lines)


@pytest.mark.parametrize(
    ("values", "shown"), [((0.5, 0.25), "0.375"), ((0.5, None), tables.ABSENT), ((), tables.ABSENT)]
)
def test_an_average_needs_every_figure_above_it(values: tuple[float | None, ...], shown: str) -> None:
    assert average([number(value, 2) for value in values], 3).text == shown


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="table-1: 1 cells in 2 columns"):
        Table("table-1", "Table 1", [Column("a"), Column("b")], [Row([words("x")])])


@pytest.mark.parametrize(("value", "shown"), [(0.0, "< 0.0001"), (0.00004, "< 0.0001"), (0.012, "0.0120")])
def test_a_small_probability_is_not_shown_as_zero(value: float, shown: str) -> None:
    assert probability(value, 4).text == shown
