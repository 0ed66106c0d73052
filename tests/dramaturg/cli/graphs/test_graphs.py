"""``dramaturg graphs`` on files, with the service started in the process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.cli.graphs import app
from dramaturg.graphs.loader import batches
from tests.support.graphs import message


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def references(tmp_path: Path) -> Path:
    rows = [
        {"scenario": scenario, "events": {"0": first, "1": scenario}, "gold_edges_for_prediction": ["0->1"]}
        | {"kind": kind}
        for scenario, first, kind in [("ride", "pay", "x"), ("bake", "mix", "y"), ("read", "sit", "y")]
    ]
    path = tmp_path / "references.json"
    path.write_text(json.dumps(rows))
    return path


def predictions(folder: Path, *rows: dict[str, object]) -> Path:
    path = folder / "predictions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_score_matches_by_id_and_names_what_is_left_out(references: Path, tmp_path: Path) -> None:
    predicted = predictions(
        tmp_path,
        {"id": 2, "edges": ["1->0"]},
        {"id": 1, "text": "Sure: step0 -> step1."},
        {"id": 9, "edges": []},
    )
    result = run("score", predicted, references, "--json", "--by", "kind")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["scripts"], found["exact_matches"], found["macro"]["f1"]) == (2, 1, 0.5)
    assert found["micro"]["edge_difference"] == 2
    assert (found["unanswered"], found["unasked"]) == (["3"], ["9"])
    groups = found["breakdowns"]["kind"]
    assert {value: group["scripts"] for value, group in groups.items()} == {"x": 1, "y": 1}
    assert any("Sure" in note for note in found["notes"])
    found = json.loads(run("score", predicted, references, "--json", "--missing", "empty").stdout)
    assert (found["scripts"], found["macro"]["f1"]) == (3, pytest.approx(1 / 3))


def test_an_answer_without_a_graph_is_scored_as_no_edges(references: Path, tmp_path: Path) -> None:
    predicted = predictions(tmp_path, {"id": 1, "text": "I cannot help."})
    found = json.loads(run("score", predicted, references, "--json").stdout)
    assert (found["unparsed"], found["macro"]["f1"]) == (["1"], 0.0)


def test_the_table_fits_a_narrow_terminal(references: Path) -> None:
    result = run("score", references, references)
    assert result.exit_code == 0
    assert "all, macro" in result.stdout
    assert "…" not in result.stdout


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("[1]", "not a JSON object"), ("{", "Expecting"), ('[{"id": 1}]', "neither events nor edges")],
)
def test_a_bad_file_is_refused_with_its_place(
    references: Path, tmp_path: Path, content: str, complaint: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(content)
    result = run("score", path, references)
    assert result.exit_code == 2
    assert "bad.json" in result.stderr
    assert complaint in result.stderr


def test_an_unknown_tag_is_refused(references: Path) -> None:
    result = run("score", references, references, "--by", "colour")
    assert result.exit_code == 2
    assert "colour" in result.stderr


def test_check_ends_with_one_where_there_is_a_cycle(tmp_path: Path) -> None:
    path = tmp_path / "graph.dot"
    path.write_text("digraph { a -> b -> a }")
    result = run("check", path)
    assert result.exit_code == 1
    assert "cycle: a -> b -> a" in result.stdout
    (entry,) = json.loads(run("check", path, "--json").stdout)
    assert entry["report"]["cycle"] == ["a", "b"]
    path.write_text("digraph { a [minutes=2]; b [minutes=3]; a -> b }")
    result = run("check", path)
    assert result.exit_code == 0
    assert "5 minutes along the critical path" in result.stdout


def test_distance_between_a_text_and_a_drawing(tmp_path: Path) -> None:
    text, dot = tmp_path / "one.txt", tmp_path / "other.dot"
    text.write_text("step0: a; step1: b; step2: c; step3: d; step0 -> step1 -> step2 -> step3")
    dot.write_text("digraph { a -> c -> b -> d }")
    distances = {
        mode: json.loads(run("distance", text, dot, "--mode", mode, "--json").stdout)["distance"]
        for mode in ("proscript", "structural", "anchored", "label-free")
    }
    assert distances == {"proscript": 5, "structural": 2, "anchored": 6, "label-free": 0}
    assert "distance 5 (proscript)" in run("distance", text, dot).stdout


def test_draw_writes_dot_where_there_is_no_graphviz(
    references: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert run("draw", references).exit_code == 2
    result = run("draw", references, "--id", 2, "--output", tmp_path / "out.dot")
    assert result.exit_code == 0
    assert '"0" -> "1";' in (tmp_path / "out.dot").read_text()
    assert "not installed" in result.stderr


def test_draw_renders_through_graphviz(
    references: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\n[ "$1" = -Tsvg ] && echo "<svg>" && cat\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert run("draw", references, "--id", 1).stdout.startswith("<svg>\ndigraph")


def test_batches_keep_to_both_limits() -> None:
    pairs = [pb.GraphPair(id=str(i), predicted=message("a>b")) for i in range(10)]
    size = pairs[0].ByteSize()
    assert [len(batch) for batch in batches(pairs, most=4, most_bytes=10**6)] == [4, 4, 2]
    assert [len(batch) for batch in batches(pairs, most=100, most_bytes=3 * size)] == [3, 3, 3, 1]
    assert list(batches([], most=4, most_bytes=100)) == [[]]
