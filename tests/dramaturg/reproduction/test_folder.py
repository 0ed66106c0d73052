from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from dramaturg.reproduction import folder as folders
from dramaturg.reproduction.figures import NO_PLOTS, BarChart, HeatMap, LineChart
from dramaturg.reproduction.folder import write_folder
from dramaturg.reproduction.paper import Omission, Reproduction
from dramaturg.reproduction.tables import Column, Row, Table, words


def example() -> Reproduction:
    table = Table("table-1", "Table 1: One", [Column("a")], [Row([words("x")])])
    figures = [
        BarChart("figure-1", "Figure 1: Bars", ["a", "b"], {"m": [1, 2], "n": [None, 3]}, notes=["A note."]),
        LineChart("figure-2", "Figure 2: Lines", ["a", "b"], {"m": [1, None]}, limits=(0, 2)),
        HeatMap("figure-3", "Figure 3: Heat", ["a", "b"], {"m": [0.1, 0.9], "n": [None, 0.5]}),
    ]
    return Reproduction("A paper", "Data: 1 row.", [table], figures, [Omission("Table 2", "It is lost.")])


def test_the_folder_has_each_table_in_three_forms_and_the_omissions(tmp_path: Path) -> None:
    write_folder(tmp_path / "new", example(), ())
    assert {"table-1.md", "table-1.csv", "table-1.tex", "README.md"} <= {
        file.name for file in (tmp_path / "new").iterdir()
    }
    index = (tmp_path / "new" / "README.md").read_text()
    assert "# A paper" in index
    assert "### Table 1: One" in index
    assert "- **Table 2.** It is lost." in index


def test_figures_are_drawn_as_svg_and_png(tmp_path: Path) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("matplotlib is not installed (extra plots)")
    write_folder(tmp_path, example(), ())
    for number in (1, 2, 3):
        assert f"Figure {number}" in (tmp_path / f"figure-{number}.svg").read_text()
        assert (tmp_path / f"figure-{number}.png").read_bytes().startswith(b"\x89PNG")
    index = (tmp_path / "README.md").read_text()
    assert "![Figure 1: Bars](figure-1.svg)" in index
    assert "A note." in index


def test_without_matplotlib_tables_are_written_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "can_draw", lambda: False)
    write_folder(tmp_path, example(), ())
    assert not list(tmp_path.glob("figure-*"))
    index = (tmp_path / "README.md").read_text()
    assert NO_PLOTS in index
    assert "Figure 1" not in index
