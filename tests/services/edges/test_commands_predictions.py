from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from dramaturg.graphs.files import Row, read_record
from services.edges.commands import predict_rows
from services.edges.order import Pair
from tests.support.edges import AlphabeticalEncoder, alphabetical_model, narrow_model


def row(identity: str, **record: Any) -> Row:
    return Row(identity, {"scenario": "s", "events": {"2": "b", "5": "c", "7": "a"}, **record})


def test_predictions_can_be_read_again_and_ignore_what_was_known(tmp_path: Path) -> None:
    counted: list[int] = []
    predictions, failures = predict_rows(
        alphabetical_model(tmp_path),
        [row("1"), row("x", gold_edges_for_prediction=["5->2"])],
        0.5,
        lambda: counted.append(1),
    )
    assert [prediction["id"] for prediction in predictions] == ["1", "x"]
    for prediction in predictions:
        graph = read_record(prediction)
        assert sorted(graph.edges) == [("2", "5"), ("7", "2")]
        assert graph.events == {"2": "b", "5": "c", "7": "a"}
    assert not failures
    assert len(counted) == 2


def test_a_root_without_words_is_read_as_the_decision(tmp_path: Path) -> None:
    model = alphabetical_model(tmp_path)
    predict_rows(model, [row("1", context="NONE", events={"0": "go", "1": "NONE"})], 0.5, lambda: None)
    assert cast("AlphabeticalEncoder", model.encoder).read[0] == Pair("s", "go", "decided to s")


def test_rows_that_cannot_be_predicted_are_named(tmp_path: Path) -> None:
    rows = [
        row("a", scenario=""),
        row("b", events={"0": "alone"}),
        row("c", events={"0": "a", "1": " "}),
        row("d", events={str(index): "x" for index in range(41)}),
        Row("e", {"scenario": "s"}),
        row("f"),
    ]
    predictions, failures = predict_rows(alphabetical_model(tmp_path), rows, 0.5, lambda: None)
    assert [prediction["id"] for prediction in predictions] == ["f"]
    assert list(failures) == ["a", "b", "c", "d", "e"]
    assert "41 events" in failures["d"]


def test_a_script_that_does_not_fit_the_model_is_named(tmp_path: Path) -> None:
    predictions, failures = predict_rows(narrow_model(tmp_path), [row("a")], 0.5, lambda: None)
    assert not predictions
    assert failures == {"a": "events make 30 tokens with the scenario; the model reads at most 16 together"}
