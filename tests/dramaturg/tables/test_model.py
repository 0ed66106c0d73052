from __future__ import annotations

import pytest

from dramaturg.tables.model import Cell, Column, Row, Table, columns


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="table-1: 1 cells in 2 columns"):
        Table("Table 1", [Column("a"), Column("b")], [Row([Cell("x")])])
    with pytest.raises(ValueError, match="two-columns: 1 cells in 2 columns"):
        Table("Two columns", columns("a", "b")).add_row("x")


def test_columns_before_the_first_figure_are_heads_unless_it_is_said() -> None:
    assert Table("t", columns("a", "b", figures=["n"])).heads == 2
    assert Table("t", columns("a", texts=["b"], figures=["n"]), heads=1).heads == 1
    assert Table("t", columns(figures=["n"])).heads == 1


def test_intervals_are_a_column_of_text_where_a_renderer_chooses_so() -> None:
    table = Table("t", columns("a", figures=[Column("mean", interval="0 to 1"), Column("all", detail=True)]))
    table.add_row("x", Cell("0.5", 0.5, (0.25, 0.75), "0.25 to 0.75"), "1")
    table.add_row("y", Cell("–"), "2", style="red")
    chosen = table.choose([0, 1])
    assert [column.name for column in chosen.columns] == ["a", "mean", "95 % interval"]
    assert [[cell.text for cell in row.cells] for row in chosen.rows] == [
        ["x", "0.5", "0.25 to 0.75"],
        ["y", "–", "–"],
    ]
    assert [row.style for row in chosen.rows] == ["", "red"]


def test_why_an_interval_is_missing_stands_beside_the_intervals() -> None:
    table = Table("t", columns("a", figures=[Column("mean", interval="0 to 1"), "plain"]))
    few = Cell("0.5", 0.5, withheld="no interval: too few samples")
    table.add_row("x", few, few)
    (row,) = table.choose(range(3)).rows
    assert [cell.note for cell in row.cells] == ["", "", "no interval: too few samples", ""]
