"""``dramaturg research graphs`` on files, with the service started in the process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def test_references_with_a_cycle_or_a_blank_event_are_named(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"id": "loop", "events": {"0": "x", "1": "y"}, "edges": ["0->1", "1->0"]},
        {"id": "self", "events": {"0": "x", "1": " "}, "edges": ["0->0", "0->1"]},
        {"id": "sound", "events": {"0": "x", "1": "y"}, "edges": ["0->1"]},
    ]
    file = predictions(tmp_path, *rows)
    found = json.loads(run("score", file, file, "--json").stdout)
    assert (found["cyclic_references"], found["blank_references"]) == (["loop", "self"], ["self"])
    assert "2 references have a cycle" in run("score", file, file).stdout


def test_predictions_with_ids_of_their_own_are_named(references: Path, tmp_path: Path) -> None:
    text = "graph TD\n A[mix] --> B[bake]"
    predicted = predictions(tmp_path, {"id": "1", "edges": ["0->1"]}, {"id": "2", "text": text})
    assert json.loads(run("score", predicted, references, "--json").stdout)["foreign_ids"] == ["2"]
    assert "1 predictions share no event id" in run("score", predicted, references).stdout


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


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_parsed_answers_are_scored_as_they_would_be_unparsed(references: Path, tmp_path: Path) -> None:
    answers = predictions(
        tmp_path, {"id": 1, "text": "Sure: step0 -> step1."}, {"id": 2, "text": "I cannot help."}
    )
    out = tmp_path / "parsed.jsonl"
    result = run("parse", answers, "--out", out)
    assert result.exit_code == 1
    assert "1: 0 events, 1 edge" in result.output
    assert "1 of 2 texts have a graph." in result.output
    assert lines(out)[1] == {"id": "2", "text": "I cannot help.", "notes": lines(out)[1]["notes"]}
    parsed, raw = (json.loads(run("score", one, references, "--json").stdout) for one in (out, answers))
    assert parsed["macro"] == raw["macro"]
    assert parsed["unparsed"] == raw["unparsed"] == ["2"]


def test_a_baseline_has_the_events_and_the_ends_of_each_reference(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"id": name, "edges": ["0->1", "1->2", "2->3"], "events": dict.fromkeys("0123", "x")}
        for name in ("a", "b")
    ]
    references, out = predictions(tmp_path, *rows), tmp_path / "drawn.jsonl"
    options = ("--out", out, "--kind", "random-chain", "--seed", 3)
    assert run("baseline", references, *options).exit_code == 0
    drawn = lines(out)
    assert [row["id"] for row in drawn] == ["a", "b"]
    for row in drawn:
        ends = [(edge["source_id"], edge["target_id"]) for edge in row["edges"]]
        assert {source for source, _ in ends} == set("012")
        assert {target for _, target in ends} == set("123")
    first = out.read_bytes()
    run("baseline", references, *options)
    assert out.read_bytes() == first
    assert run("score", out, references).exit_code == 0
    loose = predictions(tmp_path, {"id": "a", "edges": ["0->1", "0->2"]})
    result = run("baseline", loose, "--out", out)
    assert result.exit_code == 2
    assert "graphs[0]" in result.output


def test_scripts_whose_annotators_agree_are_kept(tmp_path: Path) -> None:
    chain, other = {"edges": ["0->1", "1->2"]}, {"edges": ["1->0", "0->2"]}
    file = predictions(
        tmp_path, {"id": "same", "graphs": [chain, chain]}, {"id": "apart", "graphs": [chain, other]}
    )
    out = tmp_path / "kept.jsonl"
    result = run("agree", file, "--out", out)
    assert result.exit_code == 0, result.output
    assert "1 of 2 scripts reach 0.65 (best-pair)." in result.output
    assert [row["id"] for row in lines(out)] == ["same"]
    found = json.loads(run("agree", file, "--json", "--rule", "mean").stdout)
    assert [one["kept"] for one in found] == [True, False]
    assert found[0]["agreement"] == 1
    broken = predictions(tmp_path, {"id": "one", "graphs": [chain, 5]})
    result = run("agree", broken)
    assert result.exit_code == 2
    assert 'record one: "graphs" must be a list of graphs' in result.output


def test_votes_of_sheets_and_records_are_decided_by_majority(tmp_path: Path) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("id,vote\na,better\nb,worse\nc,equal\n")
    second.write_text("id,vote,remark\na,Better,\nb,better,\nc,,none of both\n")
    result = run("vote", first, second, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["counts"] == {"better": 1, "equal": 1, "worse": 0, "undecided": 1}
    assert [one["votes"]["equal"] for one in found["decisions"]] == [0, 0, 1]
    records = predictions(tmp_path, {"id": "a", "votes": ["worse", "worse", "better"]})
    assert json.loads(run("vote", records, "--json").stdout)["counts"]["worse"] == 1
    tied = json.loads(run("vote", first, second, "--json", "--split", "equal").stdout)
    assert tied["counts"]["equal"] == 2
    second.write_text("id,vote\na,good\n")
    result = run("vote", first, second)
    assert result.exit_code == 2
    assert "second.csv: line 2: the vote is 'good', none of better, equal, worse, undecided" in result.output


def test_a_script_with_one_graph_is_named_by_its_record(tmp_path: Path) -> None:
    graph = {"edges": [{"source_id": "0", "target_id": "1"}]}
    file = predictions(tmp_path, {"id": "a", "graphs": [graph, graph]}, {"id": "b", "graphs": [graph]})
    result = run("agree", file)
    assert result.exit_code == 2
    assert "record b: has 1 graph; agreement takes two or more" in result.stderr
