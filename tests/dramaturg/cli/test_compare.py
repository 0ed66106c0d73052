"""``dramaturg compare``: folders of results, the gate and its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1.decision_pb2 import CHOICE_OPTION_1
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_REFUSED as REFUSED
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueResult
from dramaturg.api.evaluation.v1.texts_pb2 import TextsResult
from dramaturg.api.generation.v1.authoring_decisions_pb2 import DECISION_PROMPT_NAIVE
from dramaturg.cli.main import app
from dramaturg.judge.verdicts import abstained, failed, passed, scored
from tests.support.results import scripts_result, write_results
from tests.support.texts import CLEAR, POLITE

CRITERIA = ("executable", "order_correct")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["compare", *arguments], terminal_width=240, env={"COLUMNS": "240"})


def answer(*arguments: str) -> tuple[int, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code in {0, 1, 3}, result.output
    return result.exit_code, json.loads(result.stdout)


def folder(path: Path, passed: int, tasks: int = 100, abstained: int = 0, **options: Any) -> str:
    """Two criteria on a task each; the first ``passed`` tasks pass both, the last ``abstained`` neither."""

    def outcome(task: int) -> bool | None:
        return None if task >= tasks - abstained else task < passed

    results = [
        scripts_result(f"t{task}", {"a": dict.fromkeys(CRITERIA, outcome(task))}) for task in range(tasks)
    ]
    return write_results(path, results, **options)


def test_a_run_that_is_worse_is_no_go(tmp_path: Path) -> None:
    code, found = answer(folder(tmp_path / "old", 90), folder(tmp_path / "new", 60))
    assert code == 1
    assert found["gate"] == "NO-GO"
    assert [(one["group"], one["items"]) for one in found["comparisons"]] == [
        ("", 200),
        ("executable", 100),
        ("order_correct", 100),
    ]
    whole, single = (one["policies"]["excluded"] for one in found["comparisons"][:2])
    assert whole["difference"] == pytest.approx(-0.3)
    assert whole["test"] == "permutation (9999 drawn)"
    assert single["test"] == "mcnemar-exact"
    assert (single["better"], single["worse"]) == (0, 30)
    assert single["p_holm"] >= single["p"]
    assert (whole["baseline_mean"], whole["system_mean"], whole["coverage"]) == (0.9, 0.6, 1.0)
    assert found["baseline"] == "old"


def test_a_run_that_is_as_good_goes(tmp_path: Path) -> None:
    code, found = answer(folder(tmp_path / "old", 150, 200), folder(tmp_path / "new", 152, 200))
    assert (code, found["gate"]) == (0, "GO")


def test_few_items_are_inconclusive_and_say_what_they_could_have_shown(tmp_path: Path) -> None:
    code, found = answer(folder(tmp_path / "old", 6, 10), folder(tmp_path / "new", 5, 10))
    assert (code, found["gate"]) == (3, "INCONCLUSIVE")
    assert found["comparisons"][1]["policies"]["wrong"]["minimum_detectable_effect"] > 0.1


def test_a_stated_largest_loss_decides_where_tasks_are_few(tmp_path: Path) -> None:
    old, new = folder(tmp_path / "old", 40, 40), folder(tmp_path / "new", 40, 40)
    code, found = answer(old, new)
    assert (code, found["largest_task_loss"]) == (3, 1.0)
    assert "GO needs at least 72 clusters" in found["gate_reasons"][0]
    code, found = answer(old, new, "--largest-task-loss", "0.5")
    assert (code, found["largest_task_loss"]) == (0, 0.5)
    assert "where one cluster may lose 0.5" in found["gate_reasons"][0]


def test_bounds_that_hold_at_all_looks_are_named(tmp_path: Path) -> None:
    code, found = answer(folder(tmp_path / "old", 100), folder(tmp_path / "new", 60), "--anytime")
    part = found["comparisons"][0]["policies"]["wrong"]
    assert (code, found["anytime"]) == (1, True)
    assert (part["test"], part["interval_method"], part["lower_bound_method"]) == ("betting",) * 3


def test_policies_have_lines_of_their_own_where_something_abstains(tmp_path: Path) -> None:
    old, new = folder(tmp_path / "old", 40, 50), folder(tmp_path / "new", 40, 50, abstained=5)
    lines = [line.split() for line in run(old, new).stdout.splitlines()]
    rows = [line for line in lines if line[:1] == ["new"] and line[1] != "against"]
    assert len(rows) == 9
    assert {line[2] for line in rows} == {"excluded", "wrong", "worst-case"}
    lines = [line.split() for line in run(old, folder(tmp_path / "same", 40, 50)).stdout.splitlines()]
    assert {line[1] for line in lines if line[:1] == ["same"]} == {"all", *CRITERIA, "against"}


def test_the_policy_decides_what_abstentions_do_to_the_gate(tmp_path: Path) -> None:
    old, new = folder(tmp_path / "old", 50), folder(tmp_path / "new", 50, abstained=50)
    excluded, wrong, worst = (
        answer(old, new, "--policy", policy)[0] for policy in ("excluded", "wrong", "worst-case")
    )
    assert (excluded, wrong, worst) == (3, 0, 0)
    gone = folder(tmp_path / "gone", 100, abstained=50)
    better = folder(tmp_path / "better", 100)
    assert answer(better, gone, "--policy", "wrong")[0] == 1


def test_a_sample_that_failed_is_an_abstention(tmp_path: Path) -> None:
    old = folder(tmp_path / "old", 40, 40)
    results = [scripts_result(f"t{task}", {"a": dict.fromkeys(CRITERIA, True)}) for task in range(20)]
    new = write_results(tmp_path / "new", results, failed=[f"t{task}" for task in range(20, 40)])
    code, found = answer(old, new)
    assert code == 1
    assert found["comparisons"][0]["abstained"] == 40
    assert found["left_out"] == ["20 samples of new failed and count as abstentions"]


def test_labels_of_people_make_it_a_comparison_of_judges(tmp_path: Path) -> None:
    """The new judge passes half as many, and is right on all: people passed half."""
    old = folder(tmp_path / "old", 80, 80)
    new = folder(tmp_path / "new", 40, 80)
    labels = tmp_path / "labels.csv"
    rows = [
        f"t{task}/a,{criterion},{who},{'PASS' if task < 40 else 'FAIL'}\n"
        for task in range(79)
        for criterion in CRITERIA
        for who in ("ann", "bob", "cay")
    ]
    labels.write_text("item,criterion,annotator,label\n" + "".join(rows), encoding="utf-8")
    assert answer(old, new)[0] == 1
    code, found = answer(old, new, "--labels", str(labels))
    assert (code, found["value"]) == (0, "agrees with people")
    assert found["comparisons"][0]["policies"]["wrong"]["system_mean"] == 1.0
    assert found["left_out"] == ["2 items without a label of people"]


def test_candidates_of_other_names_match_by_sample(tmp_path: Path) -> None:
    old = folder(tmp_path / "old", 30, 30)
    results = [scripts_result(f"t{task}", {"b": dict.fromkeys(CRITERIA, True)}) for task in range(30)]
    new = write_results(tmp_path / "new", results)
    refused = run(old, new)
    assert refused.exit_code == 2
    assert "--match sample" in refused.stderr
    assert answer(old, new, "--match", "sample")[1]["comparisons"][0]["items"] == 60


def test_scores_of_dialogues(tmp_path: Path) -> None:
    folders = []
    for name, more in (("old", 0), ("new", 1)):
        results = []
        for index in range(30):
            result = DialogueResult()
            result.script.id = f"s{index}"
            one = result.ratings.add(model="m", judge="j")
            if index or not more:
                one.rating.value = 4 + index % 3 + more * (index % 2)
            results.append(result)
        folders.append(write_results(tmp_path / name, results))
    code, found = answer(*folders, "--margin", "0.5", "--largest-task-loss", "2")
    whole = found["comparisons"][0]["policies"]
    assert found["value"] == "rating"
    assert whole["excluded"]["n"] == 29
    assert whole["excluded"]["difference"] == pytest.approx(15 / 29)
    # The abstention counts as a 1 where the old run has a 4.
    assert whole["wrong"]["difference"] == pytest.approx((15 - 3) / 30)
    assert code == 0


def test_decisions_are_compared_by_right_answers(tmp_path: Path) -> None:
    folders = []
    for name, right in (("old", 10), ("new", 18)):
        results = []
        for index in range(20):
            result = DecisionResult(gold=CHOICE_OPTION_1)
            result.decision.id = f"d{index}"
            result.choices.add(model="m", prompt=DECISION_PROMPT_NAIVE, correct=index < right)
            results.append(result)
        folders.append(write_results(tmp_path / name, results))
    _, found = answer(*folders)
    whole, naive = found["comparisons"]
    assert naive["group"] == "naive"
    assert (whole["policies"]["excluded"]["better"], whole["policies"]["excluded"]["worse"]) == (8, 0)


def texts_folder(path: Path, polite: int, more: int) -> str:
    """Thirty texts with a verdict and a score from 1 to 5; the last score is an abstention."""
    results = []
    for index in range(30):
        result = TextsResult(criteria=[POLITE, CLEAR])
        result.task.id = f"t{index}"
        score = scored("clear", 3 + more * (index % 2)) if index < 29 else abstained("clear", REFUSED)
        verdict = passed("polite") if index < polite else failed("polite")
        result.texts.add(text_id="a", model="a", verdicts=[verdict, score])
        results.append(result)
    return write_results(path, results)


def test_texts_are_compared_by_verdicts_and_scores(tmp_path: Path) -> None:
    code, found = answer(texts_folder(tmp_path / "old", 30, 0), texts_folder(tmp_path / "new", 20, 1))
    by_group = {one["group"]: one for one in found["comparisons"]}
    polite, clear = (by_group[name]["policies"]["excluded"] for name in ("polite", "clear"))
    assert (polite["better"], polite["worse"], polite["n"]) == (0, 10, 30)
    assert polite["difference"] == pytest.approx(-10 / 30)
    # One point of a scale from 1 to 5 is a quarter.
    assert (clear["better"], clear["worse"], clear["n"]) == (14, 0, 29)
    assert clear["difference"] == pytest.approx(14 / 29 / 4)
    # The abstention of the baseline has the highest score, that of the run the lowest.
    assert by_group["clear"]["policies"]["worst-case"]["n"] == 30
    assert (by_group["clear"]["baseline_abstained"], by_group["clear"]["abstained"]) == (1, 1)
    assert found["value"].startswith("passed, or the place of the score")
    assert polite["p_holm"] < 0.05
    assert code == 1


def test_verdicts_of_texts_are_compared_with_labels_and_scores_are_not(tmp_path: Path) -> None:
    old, new = texts_folder(tmp_path / "old", 30, 0), texts_folder(tmp_path / "new", 20, 1)
    labels = tmp_path / "labels.csv"
    lines = [f"t{index}/a,polite,{who},PASS" for index in range(30) for who in ("x", "y", "z")]
    labels.write_text("\n".join(["item,criterion,annotator,label", *lines]), encoding="utf-8")
    _, found = answer(old, new, "--labels", str(labels))
    whole = found["comparisons"][0]
    assert (found["value"], whole["items"]) == ("agrees with people", 30)
    assert whole["policies"]["excluded"]["system_mean"] == pytest.approx(20 / 30)
    assert found["left_out"] == ["30 items without a label of people"]


def test_several_runs_and_a_table(tmp_path: Path) -> None:
    old = folder(tmp_path / "old", 90)
    result = run(old, folder(tmp_path / "b", 50), folder(tmp_path / "c", 90))
    assert result.exit_code == 1
    assert "b against old: no-go" in result.stdout
    assert "c against old: go" in result.stdout
    worst = [line for line in result.stdout.splitlines() if line.endswith(": passed to failed")]
    assert len(worst) == 3
    assert worst[0].startswith("  b: ")
    assert result.stdout.rstrip().endswith("NO-GO")


@pytest.mark.parametrize("second", ["same", "empty", "broken", "decisions"])
def test_what_cannot_be_compared_is_wrong_usage(tmp_path: Path, second: str) -> None:
    old = folder(tmp_path / "old", 3, 5)
    decision = DecisionResult(gold=CHOICE_OPTION_1)
    decision.decision.id = "d"
    decision.choices.add(correct=True)
    folders = {
        "same": old,
        "empty": write_results(tmp_path / "empty", []),
        "broken": write_results(tmp_path / "broken", []),
        "decisions": write_results(tmp_path / "decisions", [decision]),
    }
    (tmp_path / "broken" / "results.jsonl").write_text("{\n", encoding="utf-8")
    assert run(old, folders[second]).exit_code == 2


def judged_by(path: Path, judge: str = "llm", **made: str) -> str:
    """Two hundred tasks of two criteria, of which nearly all pass, by a judge."""
    results = []
    for task in range(200):
        result = scripts_result(f"t{task}", {"a": dict.fromkeys(CRITERIA, task < 190)})
        one = result.candidates[0].assessments.add(role="critic", judge=judge)
        one.assessment.verdicts.extend(result.candidates[0].verdicts)
        provenance = one.assessment.provenance
        provenance.name, provenance.version = "llm-critic", made.get("version", "1")
        provenance.completions.add(answered_model=made.get("model", "a"))
        provenance.prompts.add(name="critique", sha256=made.get("prompt", "ab"))
        results.append(result)
    return write_results(path, results)


@pytest.mark.parametrize(
    ("made", "change"),
    [
        ({"judge": "ours"}, "the judges of critic are 'ours', not 'llm'"),
        ({"version": "2"}, "the judge 'llm' of critic has the version 'llm-critic 2', not 'llm-critic 1'"),
        ({"model": "b"}, "the judge 'llm' of critic has the model 'b', not 'a'"),
        ({"prompt": "cd"}, "the judge 'llm' of critic has other prompts (critique)"),
    ],
)
def test_judges_that_differ_are_named_first_and_withhold_go(
    tmp_path: Path, made: dict[str, str], change: str
) -> None:
    old, new = judged_by(tmp_path / "old"), judged_by(tmp_path / "new", **made)
    table = run(old, new)
    assert table.exit_code == 3
    assert table.stdout.startswith(f"the setup changed: new: {change}\n")
    assert table.stdout.rstrip().endswith("INCONCLUSIVE")
    assert table.stdout.count("--despite-changes") == 1
    code, found = answer(old, new)
    assert (code, found["gate"], found["setup_changes"]) == (3, "INCONCLUSIVE", [f"new: {change}"])
    assert found["gate_reasons"][-1].endswith("--despite-changes permits it")
    despite = run(old, new, "--despite-changes")
    assert despite.exit_code == 0
    assert despite.stdout.startswith("the setup changed: ")
    assert answer(old, judged_by(tmp_path / "same"))[1]["setup_changes"] == []


def test_a_worse_run_of_other_judges_stays_no_go(tmp_path: Path) -> None:
    old, results = judged_by(tmp_path / "old"), []
    for task in range(200):
        result = scripts_result(f"t{task}", {"a": dict.fromkeys(CRITERIA, task < 100)})
        one = result.candidates[0].assessments.add(role="critic", judge="ours")
        one.assessment.verdicts.extend(result.candidates[0].verdicts)
        results.append(result)
    code, found = answer(old, write_results(tmp_path / "new", results))
    assert (code, found["gate"]) == (1, "NO-GO")
    assert found["setup_changes"] == ["new: the judges of critic are 'ours', not 'llm'"]


def test_labels_of_people_let_other_judges_go(tmp_path: Path) -> None:
    old, new = judged_by(tmp_path / "old"), judged_by(tmp_path / "new", model="b")
    labels = tmp_path / "labels.csv"
    rows = [
        f"t{task}/a,{criterion},ann,{'PASS' if task < 190 else 'FAIL'}\n"
        for task in range(200)
        for criterion in CRITERIA
    ]
    labels.write_text("item,criterion,annotator,label\n" + "".join(rows), encoding="utf-8")
    code, found = answer(old, new, "--labels", str(labels))
    assert (code, found["gate"]) == (0, "GO")
    assert found["setup_changes"] == ["new: the judge 'llm' of critic has the model 'b', not 'a'"]


def test_shares_lie_between_0_and_1(tmp_path: Path) -> None:
    """Student's interval of few scores near an end of the scale is wider than the scale."""
    folders = []
    for name, score in (("old", 5), ("new", 1)):
        results = []
        for task in range(4):
            result = TextsResult(criteria=[CLEAR])
            result.task.id = f"t{task}"
            one = result.texts.add(text_id="a", model="a")
            one.verdicts.append(scored("clear", 3 if not task else score))
            results.append(result)
        folders.append(write_results(tmp_path / name, results))
    whole = answer(*folders)[1]["comparisons"][0]["policies"]["wrong"]
    old, new = whole["baseline_mean_interval"], whole["system_mean_interval"]
    assert (old[1], new[0]) == (1.0, 0.0)
    assert 0 < new[1] < 1
    assert 0 < old[0] < 1


def test_one_folder_is_not_enough(tmp_path: Path) -> None:
    assert run(folder(tmp_path / "old", 3, 5)).exit_code == 2


def test_a_service_that_is_gone_is_not_a_no_go(tmp_path: Path) -> None:
    old, new = folder(tmp_path / "old", 3, 5), folder(tmp_path / "new", 3, 5)
    assert run(old, new, "--target", "127.0.0.1:1").exit_code == 4
