"""``dramaturg research convert proscript``."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest
from dramaturg.cli.main import app
from dramaturg.graphs.files import Row
from dramaturg_research.formats.proscript import convert_rows, max_degree
from services.graph.codec.graphs import decode_graph, encode_graph
from services.graph.model import ScriptGraph, check
from tests.support.graphs import graphs, message

RIDE = {
    "scenario": "ride a train",
    "events": {"0": "pay", "1": "NONE", "2": "ride a train"},
    "context": "NONE",
    "minutes": 13,
    "events_minutes": {"0": 3},
    "gold_edges_for_prediction": ["0->2", "1->0"],
}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["research", "convert", "proscript", *map(str, arguments)])


def write(file: Path, *records: Any) -> Path:
    file.write_text(json.dumps(records), encoding="utf-8")
    return file


def read(file: Path) -> list[EvaluateGraphsRequest]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return [ParseDict(json.loads(line), EvaluateGraphsRequest()) for line in lines]


def test_a_record_becomes_a_reference_with_a_named_root(tmp_path: Path) -> None:
    source = write(tmp_path / "dev.json", RIDE, {**RIDE, "domain": "travel", "level": {"depth": 2}})
    result = run(source, tmp_path / "rows.jsonl", "--tag", "level.depth")
    assert result.exit_code == 0, result.output
    assert "2 of degree 1" in result.stderr
    first, second = read(tmp_path / "rows.jsonl")
    assert (first.reference.id, first.reference.scenario) == ("1", "ride a train")
    assert [event.text for event in first.reference.events] == [
        "pay",
        "decided to ride a train",
        "ride a train",
    ]
    assert first.reference.events[0].duration_minutes == 3
    assert [(edge.source_id, edge.target_id) for edge in first.reference.edges] == [("0", "2"), ("1", "0")]
    assert dict(first.tags) == {"degree": "1"}
    assert dict(second.tags) == {"degree": "1", "domain": "travel", "level.depth": "2"}


def test_predictions_stand_beside_the_references_of_their_ids(tmp_path: Path) -> None:
    source = write(tmp_path / "dev.json", RIDE, RIDE)
    predictions = write(tmp_path / "p.json", {"id": 2, "edges": ["0->1"]}, {"id": 9, "edges": []})
    assert run(source, tmp_path / "rows.jsonl", "--graphs", f"theirs={predictions}").exit_code == 0
    first, second = read(tmp_path / "rows.jsonl")
    assert not first.graphs
    assert [graph.model for graph in second.graphs] == ["theirs"]
    assert second.graphs[0].graph.edges[0].source_id == "0"


def test_what_does_not_fit_is_named_and_left_out(tmp_path: Path) -> None:
    source = write(
        tmp_path / "dev.json",
        RIDE,
        {"edges": ["0->1", "nonsense"]},
        {"scenario": "x"},
        {**RIDE, "scenario": "x" * 10_001},
    )
    result = run(source, tmp_path / "rows.jsonl")
    assert result.exit_code == 1
    assert len(read(tmp_path / "rows.jsonl")) == 1
    assert "dev.json: 2: cannot read edges[1]: 'nonsense'; left out" in result.stderr
    assert "dev.json: 3: has neither events nor edges; left out" in result.stderr
    assert "dev.json: 4: reference.scenario" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--graphs", "nonsense"], "MODEL=FILE"),
        (["--graphs", "a=x.json", "--graphs", "a=y.json"], "twice"),
        (["--graphs", "a=absent.json"], "absent.json"),
    ],
)
def test_wrong_usage_is_2(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    result = run(write(tmp_path / "dev.json", RIDE), tmp_path / "rows.jsonl", *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert not (tmp_path / "rows.jsonl").exists()


def test_a_file_that_is_no_json_is_2(tmp_path: Path) -> None:
    source = tmp_path / "dev.json"
    source.write_text("{")
    assert run(source, tmp_path / "rows.jsonl").exit_code == 2


def test_a_degree_counts_different_edges_one_way() -> None:
    assert max_degree(message("")) == 0
    assert max_degree(message("a>b a>b a>c d>c e>c")) == 3


@given(graphs())
def test_the_degree_is_the_graph_services(graph: ScriptGraph) -> None:
    encoded = encode_graph(graph)
    assert max_degree(encoded) == check(decode_graph(encoded, "graph"), None).max_degree


@given(
    st.lists(st.dictionaries(st.sampled_from(list(RIDE)), st.integers() | st.text() | st.lists(st.text())))
)
def test_any_record_is_converted_or_named(records: list[dict[str, Any]]) -> None:
    rows = [Row(str(place), record) for place, record in enumerate(records)]
    conversion = convert_rows(rows)
    assert len(conversion.requests) + len(conversion.skipped) == len(rows)


@pytest.mark.data
def test_proscripts_development_part_has_the_published_degrees(data_dir: Path, tmp_path: Path) -> None:
    result = run(data_dir / "proscript" / "proscript_dev.json", tmp_path / "rows.jsonl")
    assert result.exit_code == 0, result.output
    requests = read(tmp_path / "rows.jsonl")
    assert len(requests) == 1085
    degrees = Counter(min(4, int(request.tags["degree"])) for request in requests)
    assert degrees == {1: 724, 2: 320, 3: 32, 4: 9}
    # Counted without root and leaf.
    events = sum(len(request.reference.events) - 2 for request in requests)
    assert events / 1085 == pytest.approx(5.412, abs=5e-4)
    assert not any(event.text == "NONE" for request in requests for event in request.reference.events)
