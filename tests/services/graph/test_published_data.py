"""Published figures, computed again from third-party data beside the checkout."""

from __future__ import annotations

import json
from collections import Counter
from math import fsum
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.cli.graphs import app
from dramaturg.graphs.files import read_record, read_rows
from dramaturg.graphs.parsing.formats import parse
from services.graph.codec.graphs import decode_graph
from services.graph.model import ScriptGraph, check
from services.graph.score import Choices, count_edges, draw, expected_f1, measure

pytestmark = pytest.mark.data


@pytest.fixture
def dev(data_dir: Path) -> list[ScriptGraph]:
    rows = read_rows(data_dir / "proscript" / "proscript_dev.json")
    return [decode_graph(read_record(row.record).message(row.id), "graph") for row in rows]


@pytest.fixture
def scored(data_dir: Path) -> dict[str, Any]:
    folder = data_dir / "proscript"
    files = [str(folder / name) for name in ("results_v4-flash.json", "reference_for_eval_summary.json")]
    tags = ["max_depth", *(f"type_cnt.{kind}" for kind in ("select", "loop", "and_join"))]
    arguments = ["score", *files, "--json", *(part for tag in tags for part in ("--by", tag))]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


@pytest.fixture
def published(data_dir: Path) -> dict[str, Any]:
    text = (data_dir / "proscript" / "eval_summary_v4-flash.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


NAMES = {
    "precision": "precision",
    "recall": "recall",
    "f1": "f1",
    "iou": "iou",
    "ged": "edge_difference",
    "e_del": "extra_edges",
    "e_ins": "missing_edges",
}


def merged(groups: list[dict[str, Any]]) -> dict[str, float]:
    """The macro measures of several groups together."""
    count = sum(one["scripts"] for one in groups)
    return {n: fsum(one["macro"][n] * one["scripts"] for one in groups) / count for n in NAMES.values()}


def assert_same(groups: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    assert sum(one["scripts"] for one in groups) == expected["edge_metrics_mean"]["n"]
    assert sum(one["exact_matches"] for one in groups) == expected["exact_match"]["edges_match_count"]
    for theirs, ours in NAMES.items():
        assert merged(groups)[ours] == pytest.approx(expected["edge_metrics_mean"][theirs], abs=1e-9)


def test_the_summary_of_real_predictions_is_reproduced(
    scored: dict[str, Any], published: dict[str, Any]
) -> None:
    assert (scored["scripts"], scored["exact_matches"]) == (1078, 457)
    for theirs, ours in NAMES.items():
        assert scored["macro"][ours] == pytest.approx(
            published["overall"]["edge_metrics_mean"][theirs], abs=1e-9
        )


def test_its_breakdown_by_nesting_depth_is_reproduced(
    scored: dict[str, Any], published: dict[str, Any]
) -> None:
    groups = scored["breakdowns"]["max_depth"]
    for depth, expected in published["by_depth"].items():
        names = [name for name in groups if name == depth or (depth == "3+" and int(name) >= 3)]
        assert_same([groups[name] for name in names], expected)


@pytest.mark.parametrize("kind", ["select", "loop", "and_join"])
def test_its_breakdown_by_structure_is_reproduced(
    scored: dict[str, Any], published: dict[str, Any], kind: str
) -> None:
    groups = scored["breakdowns"][f"type_cnt.{kind}"]
    assert_same([one for name, one in groups.items() if name != "0"], published["by_structure_type"][kind])


def test_the_statistics_of_the_development_set(dev: list[ScriptGraph]) -> None:
    reports = [check(made) for made in dev]
    assert len(reports) == 1085
    assert all(report.canonical for report in reports)
    degrees = Counter(report.max_degree for report in reports)
    assert degrees == {1: 724, 2: 320, 3: 32, 4: 6, 5: 3}
    assert fsum(report.event_count - 2 for report in reports) / 1085 == pytest.approx(5.412, abs=0.0005)


@pytest.mark.parametrize("kind", [pb.BASELINE_KIND_PERMUTE_MIDDLE, pb.BASELINE_KIND_RANDOM_DAG])
def test_random_baselines_lie_in_the_band_of_the_paper(
    dev: list[ScriptGraph], kind: pb.BaselineKind.ValueType
) -> None:
    values = []
    for draw_index in range(3):
        for place, made in enumerate(dev):
            drawn = draw(made, kind, Random(f"{draw_index}/{place}"), 0.7)
            measures = measure(count_edges(drawn, made), Choices())
            assert measures is not None
            values.append(measures.f1)
    assert 0.200 <= fsum(values) / len(values) <= 0.220


def test_the_expected_baseline_of_the_development_set(dev: list[ScriptGraph]) -> None:
    assert fsum(map(expected_f1, dev)) / len(dev) == pytest.approx(0.2068, abs=0.00005)


def test_the_training_set_is_read(data_dir: Path) -> None:
    rows = read_rows(data_dir / "proscript" / "proscript_simple_train.json")
    records = [read_record(row.record) for row in rows]
    assert len(records) == 3252
    assert not any(record.unread for record in records)


def test_the_texts_of_the_release_are_read_without_repair(data_dir: Path) -> None:
    for row in read_rows(data_dir / "proscript" / "proscript_dev.json"):
        parsed = parse(row.record["flatten_output_for_script_generation"])
        assert parsed.graph is not None
        assert parsed.repair_count == 0
        assert len(parsed.graph.events) == len(row.record["events"])
        assert len(parsed.graph.edges) == len(row.record["gold_edges_for_prediction"])
