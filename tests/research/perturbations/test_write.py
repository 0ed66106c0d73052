"""``dramaturg research perturb FILE``: rows with one fault each, and the record that undoes it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, Parse, ParseDict
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1.script_pb2 import Candidate, Edge, Script, Step, Task
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.generation.v1 import authoring_datasets_pb2 as pb
from dramaturg.cli.main import app
from dramaturg.meta_evaluation.rules import RULES, Category
from tests.support.evaluations import gateway_in_a_thread
from tests.support.step_changes import read_change, revert_changes


def row(number: int, *candidates: Candidate, **fields: Any) -> EvaluateScriptsRequest:
    task = Task(id=str(number), goal=f"Reach goal {number} online", constraints=["online"])
    return EvaluateScriptsRequest(
        **{"task": task, "candidates": candidates or [steps("a", number)], "tags": {"topic": "t"}, **fields}
    )


def steps(name: str, number: int, count: int = 4) -> Candidate:
    texts = [Step(text=f"Do {number}.{name}.{index}.") for index in range(count)]
    return Candidate(id=name, model=f"model-{name}", script=Script(steps=texts))


def write(file: Path, *rows: EvaluateScriptsRequest) -> Path:
    file.write_text("".join(json.dumps(MessageToDict(one)) + "\n" for one in rows), encoding="utf-8")
    return file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["research", "perturb", *map(str, arguments)])


def read(file: Path) -> list[EvaluateScriptsRequest]:
    return [Parse(line, EvaluateScriptsRequest()) for line in file.read_text(encoding="utf-8").splitlines()]


def records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def texts(request: EvaluateScriptsRequest) -> list[str]:
    (candidate,) = request.candidates
    return [step.text for step in candidate.script.steps]


def test_every_script_is_there_untouched_and_with_each_fault(tmp_path: Path) -> None:
    numbered = Candidate(id="b", text="1. Take 2.5 cups.\n2. Stir.\n3. Wait.")
    file = write(tmp_path / "rows.jsonl", row(1, steps("a", 1), numbered), row(2))
    result = run(file, "-o", tmp_path / "out.jsonl", "--seed", 7, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    rows = read(tmp_path / "out.jsonl")
    assert found["rows"] == len(rows) == 3 * (1 + len(RULES))
    assert found["by_operation"] == {"none": 3, **dict.fromkeys(RULES, 3)}
    assert Counter(one.tags["perturbation"] for one in rows) == found["by_category"]
    untouched = {
        (one.tags["source_line"], one.tags["candidate"]): one
        for one in rows
        if one.tags["perturbation"] == "none"
    }
    assert texts(untouched["1", "b"]) == ["Take 2.5 cups.", "Stir.", "Wait."]
    assert len({(one.task.id, one.candidates[0].id) for one in rows}) == len(rows)
    changed = records(tmp_path / "out.changes.jsonl")
    assert len(changed) == 3 * len(RULES)
    for record in changed:
        request = rows[record["line"] - 1]
        original = untouched[str(record["source_line"]), record["candidate_id"]]
        perturbation = ParseDict(record["perturbation"], pb.Perturbation())
        changes = [read_change(change) for change in perturbation.changes]
        assert texts(request) != texts(original)
        assert revert_changes(texts(request), changes) == texts(original)
        # Labels of the original are none of the variant.
        operation = perturbation.operation
        assert request.task.id == f"{original.task.id}#{record['candidate_id']}#{operation}"
        request.task.id = original.task.id
        assert request.task == original.task
        assert request.tags["topic"] == "t"
        assert request.candidates[0].model == original.candidates[0].model
        assert request.tags["operation"] == perturbation.operation
        assert request.tags["perturbation"] == record["category"] == RULES[perturbation.operation].category


def test_a_rule_does_the_same_whatever_else_is_asked_for(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", row(1), row(2))
    run(file, "-o", tmp_path / "all.jsonl", "--seed", 7)
    run(
        "write",
        file,
        "-o",
        tmp_path / "some.jsonl",
        "--seed",
        7,
        "--operation",
        "swap",
        "--operation",
        "stop",
    )
    run(file, "-o", tmp_path / "other.jsonl", "--seed", 8, "--category", "wrong-order")
    swapped = {
        name: [texts(one) for one in read(tmp_path / f"{name}.jsonl") if one.tags["operation"] == "swap"]
        for name in ("all", "some", "other")
    }
    assert swapped["all"] == swapped["some"]
    operations = {one.tags["operation"] for one in read(tmp_path / "other.jsonl")}
    assert operations == {"none", "move", "swap"}


def test_others_of_the_row_stay_when_asked_for(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", row(1, steps("a", 1), steps("b", 1)))
    run(file, "-o", tmp_path / "out.jsonl", "--operation", "delete", "--keep-others")
    for request in read(tmp_path / "out.jsonl"):
        assert [candidate.id for candidate in request.candidates] == ["a", "b"]
        faulty = request.tags["operation"] == "delete"
        for candidate in request.candidates:
            mine = candidate.id == request.tags["candidate"]
            assert len(candidate.script.steps) == (3 if faulty and mine else 4)


def test_what_cannot_be_made_is_counted(tmp_path: Path) -> None:
    ordered = steps("c", 1)
    ordered.script.edges.append(Edge(source_index=0, target_index=1))
    bare = row(1, steps("a", 1, count=1), Candidate(id="b", text="no list"), ordered)
    del bare.task.constraints[:]
    result = run(write(tmp_path / "rows.jsonl", bare), "-o", tmp_path / "out.jsonl", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert found["left_out"] == {"no steps can be found in it": 1, "its order is partial: it has edges": 1}
    assert found["by_operation"] == {"none": 1, "repeat": 1, "repeat-reworded": 1}
    assert found["skipped"]["contradict"] == {"the task has no constraint": 1}
    assert found["skipped"]["insert"] == {"there is no script for another goal": 1}
    assert found["skipped"]["swap"] == {"the script has fewer than 2 steps": 1}
    assert "not made: 1 contradict, the task has no constraint" in result.stderr


def test_only_scripts_that_people_found_right_are_taken_on_request(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", row(1, *(steps(name, 1) for name in "abcd")))
    labels = tmp_path / "labels.csv"
    labels.write_text(
        "item,criterion,annotator,label\n1/a,executable,x,pass\n1/a,order_correct,x,fail\n1/b,executable,x,pass\n"
        "1/d,executable,x,pass\n1/d,executable,y,fail\n",
        encoding="utf-8",
    )
    result = run(file, "-o", tmp_path / "out.jsonl", "--labels", labels, "--operation", "delete", "--json")
    found = json.loads(result.stdout)
    assert (found["scripts"], found["rows"]) == (1, 2)
    assert found["left_out"] == {"people did not find it right in everything": 3}
    assert {one.tags["candidate"] for one in read(tmp_path / "out.jsonl")} == {"b"}


def test_a_model_makes_the_faults(tmp_path: Path) -> None:
    asked: list[pb.PerturbScriptRequest] = []

    async def perturb_script(request: pb.PerturbScriptRequest) -> pb.PerturbScriptResponse:
        asked.append(request)
        if request.category == pb.PERTURBATION_CATEGORY_WRONG_ORDER:
            return pb.PerturbScriptResponse(failure="the model changed nothing")
        steps = [step.text for step in request.script.steps]
        change = pb.StepChange(original_index=0, original_text=steps[0])
        return pb.PerturbScriptResponse(
            script=Script(steps=[Step(text=text) for text in steps[1:]]),
            perturbation=pb.Perturbation(category=request.category, operation="model", changes=[change]),
        )

    bare = row(2)
    del bare.task.constraints[:]
    file = write(tmp_path / "rows.jsonl", row(1), bare)
    with gateway_in_a_thread({"author": {"PerturbScript": perturb_script}}) as target:
        result = run(file, "-o", tmp_path / "out.jsonl", "--model", "m", "--target", target, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert {request.options.model for request in asked} == {"m"}
    assert len(asked) == 11
    assert found["by_operation"] == {"none": 2, "model": 9}
    assert found["skipped"]["model/wrong-order"] == {"the model changed nothing": 2}
    assert found["skipped"]["broken-constraint"] == {"the task has no constraint": 1}
    rows = read(tmp_path / "out.jsonl")
    assert {one.tags["perturbation"] for one in rows} == {"none", *(set(Category) - {"wrong-order"})}


def test_a_model_chooses_the_crucial_steps_beside_the_rules(tmp_path: Path) -> None:
    asked: list[pb.PerturbScriptRequest] = []

    async def perturb_script(request: pb.PerturbScriptRequest) -> pb.PerturbScriptResponse:
        asked.append(request)
        if request.task.id == "2":
            return pb.PerturbScriptResponse(failure="the model changed nothing")
        kept = [step for step in request.script.steps if step != request.script.steps[2]]
        change = pb.StepChange(original_index=2, original_text=request.script.steps[2].text)
        made = pb.Perturbation(category=request.category, operation="model", changes=[change])
        return pb.PerturbScriptResponse(script=Script(steps=kept), perturbation=made)

    file = write(tmp_path / "rows.jsonl", row(1), row(2), row(3, steps("a", 3, count=1)))
    wanted = ["--operation", "delete-crucial", "--operation", "delete", "--model", "m"]
    with gateway_in_a_thread({"author": {"PerturbScript": perturb_script}}) as target:
        result = run(file, "-o", tmp_path / "out.jsonl", *wanted, "--target", target, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert {(one.category, one.options.model) for one in asked} == {
        (pb.PERTURBATION_CATEGORY_MISSING_STEPS, "m")
    }
    assert found["by_operation"] == {"none": 3, "delete": 2, "delete-crucial": 1}
    assert found["skipped"]["delete-crucial/missing-steps"] == {"the model changed nothing": 1}
    (crucial,) = [one for one in read(tmp_path / "out.jsonl") if one.tags["operation"] == "delete-crucial"]
    assert crucial.task.id == "1#a#delete-crucial"
    assert crucial.tags["perturbation"] == "missing-steps"
    assert texts(crucial) == ["Do 1.a.0.", "Do 1.a.1.", "Do 1.a.3."]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--operation", "delete-crucial", "--by-model"], "--by-model"),
        (["--operation", "delete-crucial", "--category", "wrong-order"], "no rule in common"),
        (["--operation", "explode"], "the rules are delete"),
        (["--operation", "delete", "--category", "wrong-order"], "no rule in common"),
        (["--operation", "delete", "--model", "m"], "excludes a model"),
    ],
)
def test_wrong_usage_says_what_is_wrong(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = run(write(tmp_path / "rows.jsonl", row(1)), "-o", tmp_path / "out.jsonl", *arguments)
    assert (result.exit_code, message in result.stderr) == (2, True)


def test_labels_of_several_rows_are_refused_with_their_ids(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.jsonl", row(1), row(1))
    labels = tmp_path / "labels.csv"
    labels.write_text("item,criterion,annotator,label\n1/a,executable,ann,PASS\n", encoding="utf-8")
    result = run(file, "-o", tmp_path / "out.jsonl", "--labels", labels)
    assert result.exit_code == 2
    assert "'1/a' of row 1, '1/a' of row 2" in result.output
