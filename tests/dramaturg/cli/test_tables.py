"""Tables in terminals of any width."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len

from dramaturg.cli.tables import print_sections, print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.tables.model import Cell, Column, Section, Table, columns

MODEL, MEASURES = "vendor/model-70b-instruct", ("completes_goal", "no_missing_steps", "satisfies_constraints")


def board() -> Table:
    table = Table(
        "", columns("rank", "model", texts=("state",), figures=("mean", "95 % interval", *MEASURES)), heads=2
    )
    for rank in ("1", "2"):
        table.add_row(rank, f"{MODEL}-{rank}", "SUCCEEDED", "0.737", "0.516 to 0.892", "0.1", "0.2", "0.3")
    return table


def printed(*shown: Table | str, width: int = 200) -> str:
    out = io.StringIO()
    print_tables(Terminal(file=out, width=width), *shown)
    return out.getvalue()


@pytest.mark.parametrize("width", [50, 80, 120, 200])
def test_names_and_figures_are_whole_whatever_the_width(width: int) -> None:
    lines = printed(board(), width=width).splitlines()
    assert max(map(cell_len, lines)) <= width
    words = " ".join(lines).split()
    assert {f"{MODEL}-1", f"{MODEL}-2", "SUCCEEDED", "0.737", "0.516", "0.892", *MEASURES} <= set(words)
    assert "…" not in " ".join(lines)


def test_what_has_no_room_stands_below_beside_the_same_names() -> None:
    assert printed(board()).count(f"{MODEL}-1") == 1
    narrow = printed(board(), width=60)
    assert narrow.count(f"{MODEL}-1") == narrow.count("rank") > 1


def test_cells_fold_at_their_spaces_before_columns_move() -> None:
    table = Table("", columns("measure", figures=("tau",)))
    table.add_row("rouge-1", "0.414 [-0.440, 0.949]")
    assert [line.split() for line in printed(table, width=20).splitlines()] == [
        ["measure", "tau"],
        ["rouge-1", "0.414"],
        ["[-0.440,"],
        ["0.949]"],
        [],
    ]


def test_a_word_longer_than_the_terminal_is_folded_and_not_cut() -> None:
    table = Table("", columns("name", figures=("n",)))
    table.add_row("x" * 50, "5")
    shown = printed(table, width=30)
    assert (shown.count("x"), max(map(len, shown.splitlines()))) == (50, 30)


def test_nothing_is_markup() -> None:
    table = Table("[red]x", columns("model [a]", figures=("[b]",)))
    table.add_row("[bold]m[/]", Cell("-", note="see [c]"))
    shown = printed(table, "line [d]")
    for text in ("model [a]", "[b]", "[red]x", "[bold]m[/]", "see [c]", "line [d]"):
        assert text in shown


def test_what_is_to_be_said_of_cells_is_said_once() -> None:
    table = Table("", columns("group", figures=("kappa", "alpha")))
    table.add_row("a", Cell("-", note="undefined: one label"), Cell("-", note="undefined: no items"))
    table.add_row("b", Cell("-", note="undefined: one label"), "0.500")
    assert printed(table).splitlines() == [
        "group  kappa  alpha",
        "a      - (1)  - (2)",
        "b      - (1)  0.500",
        "(1) undefined: one label",
        "(2) undefined: no items",
        "",
    ]


def test_tables_without_rows_and_columns_without_cells_are_left_out() -> None:
    table = Table("", columns("run", texts=("error",), figures=("n",)), heads=1)
    assert printed(table, "there is none") == "there is none\n"
    table.add_row("a", "", "1")
    assert printed(table) == "run  n\na    1\n\n"


@pytest.mark.parametrize("width", [1, 5, 12])
def test_a_terminal_without_room_is_survived(width: int) -> None:
    table = Table("", columns("", "role", figures=("n",)))
    table.add_row("", "two\nlines", "1")
    assert max(map(cell_len, printed(table, width=width).splitlines())) <= width


def test_a_cell_of_several_lines_is_as_wide_as_the_longest() -> None:
    table = Table("", columns("role", texts=("says",)), heads=1)
    table.add_row("reader", "one line\nanother")
    lines = [line.rstrip() for line in printed(table).splitlines()]
    assert lines == ["role    says", "reader  one line", "        another", ""]


def test_a_terminal_with_colours_has_coloured_heads_and_a_pipe_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = io.StringIO()
    print_tables(Terminal(file=out, width=200, force_terminal=True, color_system="standard"), board())
    heads, row, *_ = out.getvalue().splitlines()
    assert "\x1b[1;36m" in heads
    assert "\x1b" not in row
    assert "\x1b" not in printed(board())


def shares() -> Table:
    figures = [Column("PASS of judged", interval="0 to 100 %"), Column("if all passed", detail=True)]
    table = Table("Verdicts", columns("criterion", figures=figures))
    for name in ("executable", "satisfies_constraints"):
        table.add_row(name, Cell("75.0 %", 0.75, (0.25, 0.9875), "25.0 to 98.8 %"), "80.0 %")
    return table


def test_details_stand_beside_figures_where_there_is_room() -> None:
    assert [line.split()[-2:] for line in printed(shares(), width=80).splitlines()[2:4]] == [
        ["80.0", "%"]
    ] * 2
    narrow = printed(shares(), width=50)
    assert "if all passed" not in narrow
    assert narrow.count("25.0 to 98.8 %") == 2


@pytest.mark.parametrize("width", [30, 40, 50])
def test_a_unit_stays_beside_its_number(width: int) -> None:
    words = [line.split() for line in printed(shares(), width=width).splitlines()]
    assert not [line for line in words if line and line[0] == "%"]


def test_a_table_that_others_fold_is_cut_and_says_so() -> None:
    table = Table("Flips", columns("sample", figures=["n"]), folded="25 flips")
    for number in range(25):
        table.add_row(f"sample-{number}", "1")
    shown = printed(table)
    assert ("sample-19" in shown, "sample-20" in shown) == (True, False)
    assert "and 5 more rows" in shown


def test_sections_have_their_note_once_and_those_of_detail_are_left_out() -> None:
    out = io.StringIO()
    sections = [
        Section("First", [shares()], "What it says."),
        Section("Second", [shares()], "What it says.", ["One line."]),
        Section("Hidden", [shares()], detail=True),
        Section("Limits", lines=["Few samples."], warning=True),
    ]
    print_sections(Terminal(file=out, width=80), sections)
    shown = out.getvalue()
    assert shown.count("What it says.") == 1
    assert shown.count("executable") == 2
    assert "Hidden" not in shown
    assert shown.endswith("One line.\nLimits: Few samples.\n")
