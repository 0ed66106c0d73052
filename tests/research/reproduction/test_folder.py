from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import Run
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.cli.main import app
from dramaturg.plots.figures import NO_PLOTS, BarChart, HeatMap, LineChart, RankChart, Values, write_figure
from dramaturg.tables.model import Column, Row, Table
from dramaturg_research.reproduction import folder as folders
from dramaturg_research.reproduction.cells import estimate, words
from dramaturg_research.reproduction.folder import write_folder
from dramaturg_research.reproduction.paper import Omission, Reproduction
from dramaturg_research.reproduction.session import RunRecord


def example() -> Reproduction:
    table = Table("Table 1: One", [Column("a")], [Row([words("x")])], name="table-1")
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


def test_bars_of_series_that_share_no_category_are_wide() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure as Canvas

    widths = []
    alone: dict[str, Values] = {"m": [1, None], "n": [None, 3]}
    for values in (alone, alone | {"m": [1, 2]}):
        axes = Canvas().add_subplot()
        BarChart("figure-1", "Bars", ["a", "b"], values).draw(axes)
        widths.append({round(bar.get_width(), 2) for bars in axes.containers for bar in bars})
    assert widths == [{0.8}, {0.4}]


def test_lines_of_equal_ranks_are_apart() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure as Canvas

    axes = Canvas().add_subplot()
    RankChart("figure-1", "Ranks", ["x"], {"m": [1.5], "n": [1.5], "o": [3]}).draw(axes)
    drawn = [float(np.asarray(line.get_ydata())[0]) for line in axes.lines]
    assert drawn[0] < drawn[1] < 1.6
    assert [round(place) for place in (drawn[0] - 0.1, drawn[2])] == [1, 3]


def test_numbers_along_a_line_have_their_distances() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure as Canvas

    axes = Canvas().add_subplot()
    LineChart("figure-1", "Roles", ["0", "2", "3"], {"m": [1, None, 2]}).draw(axes)
    assert list(np.asarray(axes.lines[0].get_xdata())) == [0, 3]
    assert list(axes.get_xticks()) == [0, 2, 3]


def test_intervals_of_lines_are_beside_one_another() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure as Canvas

    axes = Canvas().add_subplot()
    bounds = {name: [(0.0, 2.0), (1.0, 3.0)] for name in "ab"}
    LineChart("figure-1", "Roles", ["0", "4"], {"a": [1, 2], "b": [1, 2]}, bounds=bounds).draw(axes)
    places = sorted({float(x) for line in axes.lines for x in np.asarray(line.get_xdata())})
    assert [round(place) for place in places] == [0, 0, 4, 4]
    assert len(places) == 4
    assert list(axes.get_xticks()) == [0, 4]


def test_a_cost_that_is_not_known_is_no_zero(tmp_path: Path) -> None:
    run = Run(id="r", state=run_pb2.RUN_STATE_SUCCEEDED)
    usage = Usage(prompt_token_count=90, provider_call_count=3, unpriced_call_count=3, cost_usd=0)
    write_folder(tmp_path, example(), [RunRecord("agents", run, Summary(usage=usage))])
    index = (tmp_path / "README.md").read_text()
    assert "90 tokens; the cost of 3 calls is not known" in index
    assert "USD" not in index
    assert "$" not in index


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


def test_intervals_and_printed_series_are_told_apart_in_bars(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure as Canvas

    axes = Canvas().add_subplot()
    BarChart(
        "figure-1",
        "Bars",
        ["a", "b"],
        {"m": [0.5, 0.25], "paper": [0.4, None]},
        bounds={"m": [(0.25, 0.75), None]},
        printed=["paper"],
    ).draw(axes)
    hatches = [bar.get_hatch() for bar in axes.patches]
    assert hatches == [None, None, "//"]
    (interval,) = (one for one in axes.collections if len(one.get_paths()) == 1)
    ends = np.asarray(interval.get_paths()[0].vertices)[:, 1]
    assert sorted(ends) == [0.25, 0.75]
    axes = Canvas().add_subplot()
    BarChart("figure-2", "Bars", ["a", "b"], {"m": [1, 2], "n": [3, 4]}, printed_from=1).draw(axes)
    assert [bar.get_hatch() for bar in axes.patches] == [None, "//", None, "//"]


def test_fifteen_models_have_marks_of_their_own_and_a_legend_below_the_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure as Canvas

    series = {f"a-model-{number}": [number, number + 1.0] for number in range(15)}
    sizes = {}
    for kind in (LineChart, RankChart):
        axes = Canvas().add_subplot()
        chart = kind("figure-1", "Lines", ["a", "b"], series)
        chart.draw(axes)
        assert len({line.get_marker() for line in axes.lines}) == 15
    for name, shown in (("one", {"m": [1.0, 2.0]}), ("many", series)):
        write_figure(LineChart(name, "Lines", ["a", "b"], shown), tmp_path)
        svg = ElementTree.parse(tmp_path / f"{name}.svg").getroot()
        (plot,) = svg.iterfind(".//*[@id='patch_2']/*[@d]")
        places = [float(one) for one in re.findall(r"[\d.]+", plot.get("d", ""))]
        sizes[name] = max(places[::2]) - min(places[::2]), max(places[1::2]) - min(places[1::2])
        if name == "many":
            (legend,) = svg.iterfind(".//*[@id='legend_1']")
            assert len(legend.findall(".//{http://www.w3.org/2000/svg}text")) == 15
    assert sizes["many"] == pytest.approx(sizes["one"], rel=0.05)


def test_a_long_title_stays_within_the_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    title = "Figure 9: " + "a title of many words " * 8
    write_figure(LineChart("figure-9", title, ["a", "b"], {"m": [1, 2]}), tmp_path)
    svg = (tmp_path / "figure-9.svg").read_text()
    lines = re.findall(r">([^<>]*many words[^<>]*)</(?:text|tspan)>", svg)
    assert len(lines) > 2
    assert max(map(len, lines)) <= 12 * 5


def test_results_of_models_name_them_and_are_not_replaced_without_a_model(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_folder(out, example(), (), ["a", "b-7b"])
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    command = ["research", "reproduce", "choice75", "--offline", "--data", str(tmp_path), "-o", str(out)]
    result = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert "has the results of a, b-7b" in result.output
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before


def test_an_estimate_has_its_interval_and_number(tmp_path: Path) -> None:
    cell = estimate(Estimate(value=0.5, lower=0.25, upper=0.75, count=8), 2, "0.60")
    table = Table("Table 1: One", [Column("a"), Column("b")], [Row([words("x"), cell])], name="table-1")
    write_folder(tmp_path, Reproduction("A paper", "Data.", [table]), ())
    shown = (tmp_path / "table-1.md").read_text()
    assert "| x | 0.50 (0.25 to 0.75, n 8) [0.60] |" in shown
    assert "n, the number of items" in shown
    assert "0.5,0.25,0.75,8,0.60" in (tmp_path / "table-1.csv").read_text()
