"""``research perturb report``: detection and false alarms with intervals, from what judges really said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Verdict
from dramaturg.api.evaluation.v1.run_pb2 import SAMPLE_STATE_SUCCEEDED, RunSample
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateResult, ScriptsResult
from dramaturg.cli.main import app
from dramaturg.judge.criteria import ABSEVAL, NO_DUPLICATE_STEPS, NO_MISSING_STEPS
from dramaturg.judge.verdicts import abstained, failed, passed
from gateway.runs.results import samples_as_json_lines
from tests.support.evaluations import in_a_thread
from tests.support.gateway import Fake, agents, all_pass, gateway_target, steps

pytestmark = pytest.mark.usefixtures("runs_enabled")

PASS, FAIL, ABSTAIN = "PASS", "FAIL", "ABSTAIN"


def verdict(criterion: str, outcome: str) -> Verdict:
    if outcome == ABSTAIN:
        return abstained(criterion, verdict_pb2.ABSTAIN_REASON_REFUSED, "No.")
    return passed(criterion, rationale="Fine.") if outcome == PASS else failed(criterion)


def result(line: int, fault: str, outcome: str, operation: str = "") -> ScriptsResult:
    """The result of a script whose verdict on missing steps is given; the others pass."""
    outcomes = {**dict.fromkeys(ABSEVAL, PASS), NO_MISSING_STEPS: outcome}
    verdicts = [verdict(criterion, found) for criterion, found in outcomes.items()]
    tags = {
        "perturbation": fault,
        "operation": operation or fault,
        "candidate": "a",
        "source_line": str(line),
    }
    return ScriptsResult(
        task=Task(goal="g"), tags=tags, candidates=[CandidateResult(candidate_id="a", verdicts=verdicts)]
    )


def write(file: Path, *results: ScriptsResult) -> Path:
    file.write_text("".join(json.dumps(MessageToDict(one)) + "\n" for one in results), encoding="utf-8")
    return file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


def test_rates_stand_with_their_intervals_and_what_they_are_of(tmp_path: Path) -> None:
    untouched = [PASS, PASS, PASS, FAIL, ABSTAIN]
    faulty = [FAIL, FAIL, PASS, FAIL, ABSTAIN]
    lines = [
        *(result(line, "missing-steps", outcome, "delete") for line, outcome in enumerate(faulty)),
        *(result(line, "none", outcome) for line, outcome in enumerate(untouched)),
        result(0, "duplicate-steps", PASS, "repeat"),
    ]
    (tmp_path / "errors.jsonl").write_text('{"line": 9}\n', encoding="utf-8")
    write(tmp_path / "results.jsonl", *lines)
    done = run("research", "perturb", "report", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["faults"], found["untouched"], found["failed_samples"]) == (6, 5, 1)
    missing, deleted, duplicate, repeated = found["detection"]
    assert (missing["category"], missing["operation"]) == ("missing-steps", "all")
    assert {**deleted, "operation": "all"} == missing
    assert (missing["n"], missing["judged"], missing["flagged"]) == (5, 4, 3)
    assert missing["abstentions"] == {"REFUSED": 1}
    # Wilson 1927 for 3 of 4, and for 3 of 5.
    assert missing["rate"] == pytest.approx({"value": 0.75, "lower": 0.30064, "upper": 0.95441}, abs=1e-4)
    of_all = missing["rate_abstentions_unflagged"]
    assert of_all == pytest.approx({"value": 0.6, "lower": 0.23072, "upper": 0.88238}, abs=1e-4)
    before = missing["passed_untouched"]
    assert (before["n"], before["judged"], before["flagged"]) == (3, 3, 2)
    alarms = missing["false_alarms"]
    assert (alarms["n"], alarms["judged"], alarms["flagged"]) == (5, 4, 1)
    assert alarms == found["false_alarms"][NO_MISSING_STEPS]
    assert missing["youden_j"] == pytest.approx(0.6 - 0.2)
    assert (duplicate["flagged"], duplicate["criterion"]) == (0, NO_DUPLICATE_STEPS)
    assert repeated["operation"] == "repeat"


def test_a_rate_of_nothing_is_null(tmp_path: Path) -> None:
    write(tmp_path / "results.jsonl", result(0, "missing-steps", ABSTAIN, "delete"))
    (found, _) = json.loads(run("research", "perturb", "report", tmp_path, "--json").stdout)["detection"]
    assert found["rate"] == {"value": None, "lower": None, "upper": None}
    assert found["youden_j"] is None
    shown = run("research", "perturb", "report", tmp_path)
    assert shown.exit_code == 0
    assert "nan" not in shown.stdout.casefold()


@pytest.mark.parametrize(
    ("tags", "problem"),
    [
        ({}, "no tag 'perturbation'"),
        ({"perturbation": "gone", "candidate": "a", "source_line": "1"}, "unknown perturbation 'gone'"),
        ({"perturbation": "none", "candidate": "b", "source_line": "1"}, "no candidate 'b'"),
    ],
)
def test_other_results_are_refused(tmp_path: Path, tags: dict[str, str], problem: str) -> None:
    other = ScriptsResult(task=Task(goal="g"), tags=tags, candidates=[CandidateResult(candidate_id="a")])
    done = run("research", "perturb", "report", write(tmp_path / "results.jsonl", other))
    assert (done.exit_code, problem in done.stderr) == (2, True)


async def sees_repeats(request: Any) -> Assessment:
    """A critic that fails what holds a step twice, and passes the rest."""
    texts = [step.text for step in request.candidate.script.steps]
    found = all_pass("critic")
    if len(set(texts)) < len(texts):
        for one in found.verdicts:
            if one.criterion == NO_DUPLICATE_STEPS:
                one.CopyFrom(failed(NO_DUPLICATE_STEPS))
    return found


def test_what_a_judge_can_see_is_what_is_reported(tmp_path: Path) -> None:
    rows = [
        {
            "task": {"id": str(number), "goal": f"Reach goal {number}", "constraints": ["online"]},
            "candidates": [{"id": "a", "script": MessageToDict(steps("Begin.", f"Do {number}.", "Stop."))}],
        }
        for number in range(4)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    perturbed, out = tmp_path / "perturbed.jsonl", tmp_path / "out"
    categories = ["--category", "duplicate-steps", "--category", "wrong-order"]
    assert run("research", "perturb", tmp_path / "rows.jsonl", "-o", perturbed, *categories).exit_code == 0
    with in_a_thread(lambda: gateway_target(*agents(Fake("critic", sees_repeats)))) as target:
        done = run("eval", "--kind", "scripts", perturbed, "--target", target, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    detection = json.loads(run("research", "perturb", "report", out, "--json").stdout)["detection"]
    rates = {(one["category"], one["operation"]): (one["n"], one["rate"]["value"]) for one in detection}
    assert rates["duplicate-steps", "repeat"] == (4, 1.0)
    assert rates["duplicate-steps", "repeat-reworded"] == (4, 0.0)
    assert rates["wrong-order", "all"] == (8, 0.0)
    assert detection[0]["false_alarms"]["rate"]["value"] == 0.0


def test_an_export_of_a_run_has_the_same_figures(tmp_path: Path) -> None:
    results = [result(1, "missing-steps", FAIL, "delete"), result(1, "none", PASS)]
    (tmp_path / "results").mkdir()
    write(tmp_path / "results" / "results.jsonl", *results)
    samples = [
        RunSample(index=place, state=SAMPLE_STATE_SUCCEEDED, scripts=one) for place, one in enumerate(results)
    ]
    exported = b"".join(samples_as_json_lines(samples))
    (tmp_path / "samples.jsonl").write_bytes(exported)
    of_run, of_folder = (
        json.loads(run("research", "perturb", "report", tmp_path / name, "--json").stdout)
        for name in ("samples.jsonl", "results")
    )
    assert of_run == of_folder
    assert of_run["detection"][0]["flagged"] == 1
