"""Tables in LaTeX, compiled by TeX Live where it is installed."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dramaturg.plots import tables
from dramaturg.plots.tables import latex
from dramaturg.tables.model import PRINTED_NOTE, Cell, Column, Row, Table, columns


def example() -> Table:
    return Table(
        "Table 9: A & B",
        [Column("Model"), Column("Easy", "Level"), Column("Hard", "Level")],
        [
            Row([Cell("=cmd|x_1"), Cell("0.67", 0.666666, printed="0.70"), Cell("–")]),
            Row([Cell("Average"), Cell("3", 3), Cell("-0.5", -0.5)], ruled=True),
        ],
        name="table-9",
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
    assert PRINTED_NOTE in lines
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


def figures() -> Table:
    table = Table("Shares", columns("model", figures=[Column("PASS", interval="0 to 100 %"), "n"]))
    table.add_row("a", Cell("50.0 %", 0.5, (0.25, 0.75), "25.0 to 75.0 %", judged=3, total=4), "4")
    table.add_row("b", Cell("–"), "0")
    return table


def test_intervals_are_columns_of_every_format() -> None:
    assert "| model | PASS | 95 % interval | n |" in tables.markdown(figures())
    assert r"a & 50.0 \% & 25.0 to 75.0 \% & 4 \\" in tables.latex(figures())
    assert list(csv.reader(io.StringIO(tables.csv(figures()), newline=""))) == [
        ["model", "PASS", "PASS (lower)", "PASS (upper)", "PASS (judged)", "PASS (of)", "n"],
        ["a", "0.5", "0.25", "0.75", "3", "4", "4"],
        ["b", "", "", "", "", "", "0"],
    ]


DOCUMENT = r"""\documentclass[twocolumn]{article}
\usepackage[utf8]{inputenc}
\usepackage{booktabs,graphicx}
\begin{document}
%s
\end{document}
"""
MOST_OVERFULL = 1.0
"""Points by which a line may be too wide."""


def wide() -> Table:
    columns = [Column("Model"), Column("Reason"), *(Column(f"figure {place}", "group") for place in range(9))]
    figures = [Cell("0.50 (0.25 to 0.75, n 8)", 0.5, printed="0.60") for _ in range(9)]
    row = Row([Cell("a_model & 100 %"), Cell("words"), *figures])
    return Table("Table 1: Of many columns", columns, [row], heads=1, name="table-1", notes=["A note."])


def test_a_wide_table_takes_the_page_and_words_are_left() -> None:
    text = latex(wide())
    assert text.startswith(r"\begin{table*}")
    assert text.rstrip().endswith(r"\end{table*}")
    assert r"\centering\small" in text
    # Nine columns of 32 letters are no line of a page: the parts have the names of the rows.
    assert text.count(r"\begin{tabular}{l") == text.count(r"a\_model \& 100 \%") == 5
    assert text.count(r"\caption") == 1
    narrow = latex(Table("Table 2: Narrow", [Column("a"), Column("b")], [["x", Cell("1", 1.0)]]))
    assert r"\begin{table}" in narrow
    assert r"\begin{tabular}{lr}" in narrow


def wordy() -> Table:
    texts = [", ".join(f"task {place}" for place in range(60))] * 2
    return Table(
        "Table 3: Of long texts", [Column("Tasks"), Column("run"), Column("paper")], [["hard", *texts]]
    )


def test_long_texts_are_paragraphs_that_share_the_line() -> None:
    text = latex(wordy())
    assert text.startswith(r"\begin{table*}")
    assert r"\begin{tabular}{lp{0.47\linewidth}p{0.47\linewidth}}" in text


def long() -> Table:
    columns = [Column("Model"), *(Column(f"figure {place}") for place in range(9))]
    figures = [Cell("0.50 (0.25 to 0.75, n 8)", 0.5) for _ in range(9)]
    rows = [[Cell(f"m{number}"), *figures] for number in range(60)]
    return Table("Table 4: Of many rows", columns, rows, name="table-4", notes=["A note."])


def test_what_is_higher_than_a_page_is_continued() -> None:
    text = latex(long())
    pages = text.count(r"\begin{table*}")
    assert pages > 1
    assert text.count("(continued)") == text.count(r"\addtocounter{table}{-1}") == pages - 1
    assert text.count(r"\label") == text.count("A note.") == 1
    # Each row is in every part of the columns.
    parts = text.count(r"m7 & ")
    assert parts > 1
    assert all(text.count(rf"m{number} & ") == parts for number in range(60))
    assert latex(wide()).count(r"\begin{table*}") == 1


def test_tables_compile_and_fit_their_page(tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed (TeX Live)")
    columns = [Column("Model"), *(Column(f"a long head {place}") for place in range(4))]
    narrow = Table(
        "Table 2: Of one column", columns, [["m", *(Cell("0.50 (0.25 to 0.75)", 0.5) for _ in range(4))]]
    )
    content = "\n".join(map(latex, (wide(), narrow, wordy(), long())))
    (tmp_path / "tables.tex").write_text(DOCUMENT % content, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert made.returncode == 0, made.stdout[-2000:]
    log = (tmp_path / "tables.log").read_text(encoding="latin-1")
    assert "Float too large" not in log
    overfull = [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt", log)]
    assert max(overfull, default=0.0) <= MOST_OVERFULL
