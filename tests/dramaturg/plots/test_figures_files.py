from __future__ import annotations

import csv
import importlib.util
import json
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict
from typer.testing import CliRunner

from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.cli.main import app
from dramaturg.cli.summaries import as_json
from dramaturg.plots.figures import write_plots
from dramaturg.report.tokens import SERIES
from tests.dramaturg.report.many import MODELS, many
from tests.dramaturg.report.samples import RESULTS, summarized

DRAWS = importlib.util.find_spec("matplotlib") is not None


@pytest.mark.parametrize("kind", sorted(RESULTS))
def test_each_kind_has_tables_and_charts(tmp_path: Path, kind: str) -> None:
    summary = summarized(list(many(kind, 16)))
    # Charts are made of tables, regardless of the kind. Those of pairs have every form; one takes a second.
    draw = DRAWS and kind == "pair"
    written = write_plots(summary, tmp_path, draw=draw)
    assert len(written) == len(set(written))
    assert all(file.stat().st_size for file in written)
    by_suffix = {
        suffix: [file for file in written if file.suffix == suffix] for suffix in (".md", ".csv", ".tex")
    }
    assert len(by_suffix[".md"]) == len(by_suffix[".csv"]) == len(by_suffix[".tex"]) > 2
    assert all(r"\toprule" in file.read_text(encoding="utf-8") for file in by_suffix[".tex"])
    assert (tmp_path / "models-by-rank.tex").is_file() == bool(summary.leaderboard)
    if draw:
        drawn = (tmp_path / "map-of-the-roles.svg").read_text(encoding="utf-8")
        assert ">Physician<" in drawn
        assert ">subjective, coarse<" in drawn
        assert all(f"fill: {one}" in drawn for one, _ in SERIES[:2])
        charts = {file.name for file in written}
        assert {f"models-by-rank-intervals{suffix}" for suffix in (".svg", ".png", ".pdf")} <= charts
        ranked = (tmp_path / "models-by-rank-intervals.svg").read_text(encoding="utf-8")
        assert ">Models by rank (n = 16)<" in ranked


def test_csv_has_figures_intervals_and_coverage_in_full_precision(tmp_path: Path) -> None:
    summary = summarized(list(many("scripts", 16)))
    write_plots(summary, tmp_path, draw=False)
    file = tmp_path / "pass-of-judged-by-criterion-and-model.csv"
    with file.open(encoding="utf-8-sig", newline="") as opened:
        rows = {row["criterion"]: row for row in csv.DictReader(opened)}
    for one in summary.scripts.figures:
        if not one.tags and one.model == "writer-tiny" and one.criterion:
            row = rows[one.criterion]
            assert float(row["writer-tiny"]) == one.pass_rate.value
            assert float(row["writer-tiny (lower)"]) == one.pass_rate.lower
            assert float(row["writer-tiny (upper)"]) == one.pass_rate.upper
            assert (int(row["writer-tiny (judged)"]), int(row["writer-tiny (of)"])) == (
                one.pass_rate.count,
                one.pass_rate.total,
            )


def test_the_command_reads_results_and_summaries(tmp_path: Path) -> None:
    samples = list(many("scripts", 8, MODELS[:1]))
    lines = (json.dumps(MessageToDict(one.scripts)) + "\n" for one in samples)
    (tmp_path / "results.jsonl").write_text("".join(lines), encoding="utf-8")
    summary = tmp_path / "summary.json"
    summary.write_text(json.dumps(as_json(summarized(samples))), encoding="utf-8")
    for source in (tmp_path, summary):
        out, page = tmp_path / f"plots-of-{source.name}", tmp_path / f"{source.name}.html"
        done = CliRunner().invoke(app, ["report", str(source), "-o", str(page), "--plots", str(out)])
        assert done.exit_code == 0, done.output
        assert (out / "verdicts-by-criterion.md").is_file()
        assert page.is_file() == (source != summary)
    empty = tmp_path / "empty.json"
    empty.write_text(json.dumps(as_json(Summary())), encoding="utf-8")
    done = CliRunner().invoke(app, ["report", str(empty), "--plots", str(tmp_path / "none")])
    assert done.exit_code == 2
    several = ["report", str(tmp_path), str(tmp_path), "--plots", str(tmp_path / "none")]
    done = CliRunner().invoke(app, several)
    assert (done.exit_code, done.stderr) == (2, "--plots is for one folder of results\n")
