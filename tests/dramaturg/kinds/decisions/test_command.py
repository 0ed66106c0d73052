"""``dramaturg eval --kind decisions`` as a user runs it, against a gateway over real gRPC."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.decision_pb2 import Choice
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.api.generation.v1.authoring_decisions_pb2 import ChooseOptionRequest, ChooseOptionResponse
from dramaturg.cli.main import app
from dramaturg.service.errors import ServiceError
from tests.support.evaluations import CALL, decision, gateway_in_a_thread
from tests.support.figures import figure

pytestmark = pytest.mark.usefixtures("runs_enabled")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(
        app, ["eval", "--kind", "decisions", *map(str, arguments)], env={"COLUMNS": "200"}
    )


def summary(result: Result) -> Any:
    assert result.exit_code in {0, 1, 4}, result.output
    return json.loads(result.stdout)


def write(file: Path, planted: list[tuple[int, str]], source: str = "choice75") -> Path:
    """Rows whose scenario names their right choice."""
    requests = [
        EvaluateDecisionsRequest(
            decision=decision(f"{level} {gold} {number}", id=str(number)),
            gold=Choice.ValueType(gold),
            tags={"source": source, "format": "user_profile", "level": level},
        )
        for number, (gold, level) in enumerate(planted)
    ]
    file.write_text("".join(json.dumps(MessageToDict(one)) + "\n" for one in requests), encoding="utf-8")
    return file


def pick(found: Any, **wanted: str) -> Any:
    return figure(found["decisions"]["figures"], **wanted)


def counts_of(one: Any) -> tuple[int, int, int]:
    """The items, those answered, and those answered rightly."""
    group = one["accuracy"]
    return group["item_count"], group["answered_count"], group["correct_count"]


async def planted(request: ChooseOptionRequest) -> ChooseOptionResponse:
    """Right on easy, option 1 on all else, nothing on scenario 4; swapped always the option shown first."""
    level, gold, number = request.decision.scenario.split()
    if number == "4":
        return ChooseOptionResponse(text="hm", provenance=CALL)
    if request.options_swapped:
        return ChooseOptionResponse(choice=Choice.ValueType(2), provenance=CALL)
    choice = int(gold) if level == "easy" else 1
    return ChooseOptionResponse(choice=Choice.ValueType(choice), provenance=CALL)


PLANTED = [(1, "easy"), (2, "easy"), (1, "medium"), (2, "medium"), (1, "hard"), (2, "hard"), (3, "either")]


def test_planted_choices_give_the_figures_computed_by_hand(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", PLANTED)
    with gateway_in_a_thread({"author": {"ChooseOption": planted}}, alignment=True) as target:
        result = run(file, "--target", target, "--model", "m", "--json", "--out", tmp_path / "out")
    found = summary(result)
    assert result.exit_code == 4
    assert (found["sample_count"], found["decisions"]["choice_count"]) == (7, 7)
    assert (found["judgement_count"], found["abstentions_by_reason"]) == (7, {"UNPARSABLE": 1})
    assert found["usage"]["provider_call_count"] == 7
    everything = pick(found, format="all", level="all")
    accuracy = everything["accuracy"]
    # Right: both easy ones and the first medium one; the scenario 4 abstains; 3 of 6 answered, of 7 in all.
    assert counts_of(everything) == (7, 6, 3)
    assert accuracy["accuracy_when_answered"]["value"] == 3 / 6
    assert accuracy["accuracy_abstentions_wrong"]["value"] == pytest.approx(3 / 7)
    assert everything["accuracy_abstentions_right"] == pytest.approx(4 / 7)
    # Easy 1, medium 1/2, hard 0, either 0.
    assert accuracy["macro_accuracy"]["value"] == pytest.approx(1.5 / 4)
    assert everything["human_accuracy"] == 0.74
    assert {"gold": "either", "predicted": "option-1", "count": 1} in accuracy["confusion"]
    assert {"gold": "option-1", "predicted": "", "count": 1} in accuracy["confusion"]
    binary = pick(found, format="user_profile", level="binary")
    assert counts_of(binary) == (6, 5, 3)
    # Wilson's interval for 3 of 5.
    interval = binary["accuracy"]["accuracy_when_answered"]
    assert (interval["lower"], interval["upper"]) == pytest.approx((0.2307, 0.8824), abs=1e-4)
    hard = pick(found, format="user_profile", level="hard")
    assert (counts_of(hard), hard["human_accuracy"]) == ((2, 1, 0), 0.75)
    assert {one["order"] for one in found["decisions"]["figures"]} == {"as-given"}
    assert found["decisions"]["option_orders"] == []
    assert len((tmp_path / "out" / "results.jsonl").read_text().splitlines()) == 7


def test_decisions_without_labels_say_what_is_missing(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", [(0, "medium"), (0, "medium")])
    with gateway_in_a_thread({"author": {"ChooseOption": planted}}, alignment=True) as target:
        result = run(file, "--target", target, "--model", "m", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "nothing was judged: 2 judgements do not count as asked for (NOT_APPLICABLE 2)" in result.output
    assert 'Without a label no choice is right or wrong: a row has it in "gold".' in result.output


@pytest.mark.parametrize("source", ["", "ours"])
def test_the_accuracy_of_people_stands_beside_released_decisions_alone(tmp_path: Path, source: str) -> None:
    mine = write(tmp_path / "mine.jsonl", [(1, "hard")], source=source)
    released = write(tmp_path / "released.jsonl", [(1, "easy")])
    both = tmp_path / "both.jsonl"
    both.write_text(mine.read_text() + released.read_text())
    with gateway_in_a_thread({"author": {"ChooseOption": planted}}, alignment=True) as target:
        options = ("--target", target, "--model", "m", "--out", tmp_path / "out")
        found = summary(run(both, *options, "--json"))
        table = run(mine, *options)
    human = {(one["format"], one["level"]): one["human_accuracy"] for one in found["decisions"]["figures"]}
    assert human["user_profile", "easy"] == 0.89
    assert human["user_profile", "hard"] is None
    assert human["all", "all"] is None
    assert "people" not in table.stdout.split()


def test_both_orders_show_the_position_bias(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", PLANTED)
    with gateway_in_a_thread({"author": {"ChooseOption": planted}}, alignment=True) as target:
        found = summary(
            run(file, "--target", target, "--set", "option_order=both", "--json", "--out", tmp_path / "out")
        )
    (bias,) = found["decisions"]["option_orders"]
    # As given 1 2 1 1 . 1 1, swapped 2 each: only the second is chosen alike; 5 + 6 of 12 are shown first.
    assert (bias["decision_count"], bias["answered_count"], bias["named_count"]) == (7, 6, 12)
    assert bias["same_share"] == pytest.approx(1 / 6)
    assert bias["first_presented_share"] == pytest.approx(11 / 12)
    assert {one["order"] for one in found["decisions"]["figures"]} == {"as-given", "swapped"}


def test_tables_for_people(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", PLANTED)
    with gateway_in_a_thread({"author": {"ChooseOption": planted}}, alignment=True) as target:
        result = run(
            *(file, "--target", target, "--model", "m", "--set", "prompts=naive,story"),
            *("--set", "option_order=both", "--out", tmp_path / "out"),
        )
    assert result.exit_code == 4
    shown = (
        "Accuracy of m, prompt naive, options as-given",
        "Accuracy of m, prompt story, options swapped",
        "user_profile",
        "binary",
        " people ",
        "unparsable",
    )
    for text in shown:
        assert text in result.stdout
    assert "first presented" in result.stdout


def test_a_decision_that_fails_is_listed_and_the_others_stand(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", PLANTED[:2])
    lines = [{**json.loads(line), "models": ["m"]} for line in file.read_text().splitlines()]
    # The gateway refuses a model that is named twice.
    lines[1]["models"] = ["m", "m"]
    file.write_text("".join(f"\n{json.dumps(line)}\n" for line in lines))
    with gateway_in_a_thread({"author": {"ChooseOption": planted}}, alignment=True) as target:
        options = ("--target", target, "--json", "--out", tmp_path / "out")
        result = run(file, *options)
        refused = run(file, *options, "--model", "m", "--model", "m", "--replace")
    assert result.exit_code == 1
    assert (summary(result)["sample_count"], summary(result)["failed_sample_count"]) == (2, 1)
    (error,) = [json.loads(line) for line in (tmp_path / "out" / "errors.jsonl").read_text().splitlines()]
    assert (error["index"], error["line"], error["violations"][0]["field"]) == (1, 4, "models[1]")
    assert (refused.exit_code, "models[1]" in refused.stderr) == (2, True)


def test_wrong_usage_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"decision": {"goal": "x"}}\n{"decisions": 1}\n', encoding="utf-8")
    result = run(bad, "--target", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "line 1: decision.option_1" in result.stderr
    assert "line 2: decisions: there is no such field" in result.stderr


def test_a_budget_that_ends_abstains(tmp_path: Path) -> None:
    async def broke(request: ChooseOptionRequest) -> ChooseOptionResponse:
        raise ServiceError(
            grpc.StatusCode.RESOURCE_EXHAUSTED, error_reason_pb2.ERROR_REASON_BUDGET_EXHAUSTED, "no money"
        )

    file = write(tmp_path / "rows.jsonl", PLANTED[:2])
    with gateway_in_a_thread({"author": {"ChooseOption": broke}}, alignment=True) as target:
        result = run(file, "--target", target, "--json", "--out", tmp_path / "out")
    found = summary(result)
    assert result.exit_code == 1
    assert found["abstentions_by_reason"] == {"OVER_BUDGET": 2}
    everything = pick(found, format="all", level="all")
    assert everything["accuracy"]["accuracy_when_answered"]["value"] is None
    assert everything["accuracy"]["accuracy_abstentions_wrong"]["value"] == 0
