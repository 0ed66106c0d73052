"""Tables in LaTeX, compiled by TeX Live where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dramaturg.plots.tables import latex
from dramaturg.tables.model import Cell, Column, Row, Table

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
    assert rf"\begin{{tabular}}{{ll{'r' * 9}}}" in text
    narrow = latex(Table("Table 2: Narrow", [Column("a"), Column("b")], [["x", Cell("1", 1.0)]]))
    assert r"\begin{table}" in narrow
    assert r"\begin{tabular}{lr}" in narrow


def test_tables_compile_and_fit_their_page(tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed (TeX Live)")
    columns = [Column("Model"), *(Column(f"a long head {place}") for place in range(4))]
    narrow = Table(
        "Table 2: Of one column", columns, [["m", *(Cell("0.50 (0.25 to 0.75)", 0.5) for _ in range(4))]]
    )
    content = "\n".join(map(latex, (wide(), narrow)))
    (tmp_path / "tables.tex").write_text(DOCUMENT % content, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert made.returncode == 0, made.stdout[-2000:]
    log = (tmp_path / "tables.log").read_text(encoding="latin-1")
    overfull = [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt", log)]
    assert max(overfull, default=0.0) <= MOST_OVERFULL
