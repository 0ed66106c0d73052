"""MeasureJudgeAgreement: a stored run through a gateway with its alignment service."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import krippendorff
import numpy as np
import pytest

from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_TIMED_OUT,
    OUTCOME_ABSTAIN,
    OUTCOME_FAIL,
    OUTCOME_PASS,
    OUTCOME_SCORED,
)
from dramaturg.api.evaluation.v1.run_pb2 import SAMPLE_STATE_SUCCEEDED, RunSample
from dramaturg.api.evaluation.v1.run_service_pb2 import ITEM_MATCH_SAMPLE, MeasureJudgeAgreementRequest
from dramaturg.service.errors import ServiceError
from gateway.evaluations import judge_agreement
from gateway.evaluations.judge_agreement import JudgeAgreement
from tests.support.command_line import dramaturg
from tests.support.stored_runs import address_of, client, gateway_address, store_run

JUDGES = ("strict", "kind", "other")
OUTCOMES = {True: OUTCOME_PASS, False: OUTCOME_FAIL, None: OUTCOME_ABSTAIN}


def said(tasks: int = 12, seed: int = 4) -> list[list[list[bool | None]]]:
    """What each judge says of both candidates of each task: mostly what the first says."""
    generator = np.random.default_rng(seed)
    found: list[list[list[bool | None]]] = []
    for _ in range(tasks):
        truths = generator.random(2) < 0.6
        found.append(
            [
                [
                    None
                    if judge == 2 and generator.random() < 0.2
                    else bool(truth ^ (generator.random() < 0.2))
                    for judge in range(3)
                ]
                for truth in truths
            ]
        )
    return found


def scripts(task: int, answers: Sequence[Sequence[bool | None]], judges: Sequence[str] = JUDGES) -> RunSample:
    sample = RunSample(index=task, sample_id=f"s{task}", state=SAMPLE_STATE_SUCCEEDED, attempt_count=1)
    sample.scripts.task.id = f"t{task}"
    for place, values in enumerate(answers):
        candidate = sample.scripts.candidates.add(candidate_id=f"c{place}", model="m")
        candidate.verdicts.add(criterion="executable", outcome=OUTCOMES[values[0]])
        for model, judge, value in zip(JUDGES, judges, values, strict=False):
            one = candidate.assessments.add(candidate_id=f"c{place}", role="execute", judge=judge)
            one.assessment.provenance.completions.add(requested_model=model)
            verdict = one.assessment.verdicts.add(criterion="executable", outcome=OUTCOMES[value])
            if value is None:
                verdict.abstain_reason = ABSTAIN_REASON_TIMED_OUT
    return sample


def kappa(first: Sequence[float], second: Sequence[float]) -> float:
    one, other = np.array(first), np.array(second)
    observed = (one == other).mean()
    expected = one.mean() * other.mean() + (1 - one.mean()) * (1 - other.mean())
    return float((observed - expected) / (1 - expected))


async def test_members_of_a_panel_are_compared(tmp_path: Path) -> None:
    answers = said()
    store_run(address_of(tmp_path), "run", [scripts(task, one) for task, one in enumerate(answers)])
    async with client(tmp_path, "alignment") as gateway:
        found = await gateway.runs.judge_agreement(MeasureJudgeAgreementRequest(run_ids=["run"]))
    rows = [candidate for task in answers for candidate in task]
    columns: list[list[bool | None]] = [[row[judge] for row in rows] for judge in range(3)]
    data = [[np.nan if value is None else float(value) for value in column] for column in columns]
    whole, criterion = found.verdicts.groups
    assert (whole.group, criterion.group) == ("", "executable")
    assert whole.krippendorff_alpha.value == pytest.approx(
        krippendorff.alpha(data, level_of_measurement="nominal")
    )
    (pair,) = [
        one for one in whole.pairs if {one.first_annotator, one.second_annotator} == {"kind", "strict"}
    ]
    assert pair.cohen_kappa.value == pytest.approx(kappa(data[0], data[1]))
    assert pair.cohen_kappa.lower < pair.cohen_kappa.value < pair.cohen_kappa.upper
    assert not found.HasField("scores")
    counts = {one.name: (one.judgement_count, dict(one.abstentions_by_reason)) for one in found.judges}
    abstained = sum(row[2] is None for row in rows)
    assert counts == {"strict": (24, {}), "kind": (24, {}), "other": (24, {"TIMED_OUT": abstained})}


async def test_the_command_prints_the_agreement_of_every_two_judges(tmp_path: Path) -> None:
    store_run(address_of(tmp_path), "run", [scripts(task, one) for task, one in enumerate(said())])
    async with gateway_address(tmp_path, "alignment") as target:
        done = await dramaturg("runs", "agreement", "run", "--target", target)
        described = (await dramaturg("runs", "agreement", "run", "--target", target, "--json")).json
    assert "kind - strict" in done.out
    assert "\n\n\n" not in done.out
    assert [one["judge"] for one in described["judges"]] == ["kind", "other", "strict"]
    assert described["verdicts"][0]["krippendorff_alpha"] > 0


async def test_intervals_take_the_items_of_a_task_together(tmp_path: Path) -> None:
    """Candidates of a task that are judged alike say as much as one of them."""
    answers = [[task[0]] * 8 for task in said(30)]
    store_run(address_of(tmp_path), "few", [scripts(task, one[:1]) for task, one in enumerate(answers)])
    store_run(address_of(tmp_path), "many", [scripts(task, one) for task, one in enumerate(answers)])
    widths = []
    async with client(tmp_path, "alignment") as gateway:
        for run_id in ("few", "many"):
            found = await gateway.runs.judge_agreement(MeasureJudgeAgreementRequest(run_ids=[run_id]))
            alpha = found.verdicts.groups[0].krippendorff_alpha
            widths.append(alpha.upper - alpha.lower)
    assert widths[1] == pytest.approx(widths[0], rel=0.1)


async def test_runs_are_compared_as_judges(tmp_path: Path) -> None:
    before, after = said(10, seed=1), said(10, seed=1)
    for task in after[:3]:
        task[0][0] = not task[0][0]
    for name, some in (("before", before), ("after", after[:9])):
        store_run(address_of(tmp_path), name, [scripts(task, one) for task, one in enumerate(some)])
    request = MeasureJudgeAgreementRequest(run_ids=["before", "after"])
    async with client(tmp_path, "alignment") as gateway:
        found = await gateway.runs.judge_agreement(request)
        request.match = ITEM_MATCH_SAMPLE
        request.run_ids[:] = ["before", "before"]
        with pytest.raises(ServiceError) as twice:
            await gateway.runs.judge_agreement(request)
    group = found.verdicts.groups[0]
    assert group.item_count == 18
    assert group.observed_agreement.value == pytest.approx(15 / 18)
    assert found.single_count == 2
    assert twice.value.violations[0].field == "run_ids"


async def test_scores_are_compared_on_their_scale(tmp_path: Path) -> None:
    scores = [[1, 2], [2, 2], [4, 5], [5, 5], [3, 1], [4, 4]]
    some = []
    for index, values in enumerate(scores):
        sample = RunSample(index=index, sample_id=f"s{index}", state=SAMPLE_STATE_SUCCEEDED, attempt_count=1)
        scale = sample.texts.criteria.add(id="clear").scale
        scale.lowest, scale.highest = 1, 5
        text = sample.texts.texts.add(text_id="a")
        for judge, value in zip(JUDGES, values, strict=False):
            one = text.assessments.add(role="rubric", judge=judge)
            one.assessment.verdicts.add(criterion="clear", outcome=OUTCOME_SCORED, score=value)
        some.append(sample)
    store_run(address_of(tmp_path), "run", some)
    async with client(tmp_path, "alignment") as gateway:
        found = await gateway.runs.judge_agreement(MeasureJudgeAgreementRequest(run_ids=["run"]))
    group = found.scores.groups[0]
    expected = krippendorff.alpha(np.array(scores, float).T, level_of_measurement="interval")
    assert group.krippendorff_alpha.value == pytest.approx(expected)
    assert group.pairs[0].quadratic_kappa.HasField("value")
    assert group.icc_agreement.HasField("value")
    assert not found.HasField("verdicts")


async def test_a_run_without_panels_has_no_figures(tmp_path: Path) -> None:
    store_run(address_of(tmp_path), "run", [scripts(0, [[True], [False]])])
    async with client(tmp_path) as gateway:
        found = await gateway.runs.judge_agreement(MeasureJudgeAgreementRequest(run_ids=["run"]))
    assert not found.HasField("verdicts")
    assert found.single_count == 2


async def test_without_an_alignment_service_it_is_refused(tmp_path: Path) -> None:
    store_run(address_of(tmp_path), "run", [scripts(0, [[True, True]])])
    async with client(tmp_path) as gateway:
        with pytest.raises(ServiceError, match="'alignment' has no service"):
            await gateway.runs.judge_agreement(MeasureJudgeAgreementRequest(run_ids=["run"]))


def test_one_judge_with_two_models_is_two() -> None:
    agreement = JudgeAgreement(MeasureJudgeAgreementRequest())
    agreement.add(scripts(0, [[True, False]], ["llm"] * 3))
    (item,) = agreement.requests()["verdicts"].items
    labels = {one.annotator: list(one.labels) for one in item.annotations}
    assert labels == {"execute/llm (strict)": ["PASS"], "execute/llm (kind)": ["FAIL"]}


def test_one_judge_asked_twice_with_one_model_is_two() -> None:
    agreement = JudgeAgreement(MeasureJudgeAgreementRequest())
    sample = scripts(0, [[True, False]], ["llm"] * 3)
    for one in sample.scripts.candidates[0].assessments:
        one.assessment.provenance.completions[0].requested_model = "m"
    agreement.add(sample)
    (item,) = agreement.requests()["verdicts"].items
    assert [one.annotator for one in item.annotations] == ["execute/llm (m)", "execute/llm (m) 2"]


def test_samples_of_one_task_have_their_own_items() -> None:
    agreement = JudgeAgreement(MeasureJudgeAgreementRequest())
    for index, answers in enumerate(([[True, True]], [[False, True]])):
        sample = scripts(0, answers)
        sample.index, sample.sample_id = index, f"s{index}"
        agreement.add(sample)
    items = agreement.requests()["verdicts"].items
    labels = [[one.labels[0] for one in item.annotations] for item in items]
    assert labels == [["PASS", "PASS"], ["FAIL", "PASS"]]
    assert {item.tags["task"] for item in items} == {"t0"}


def test_a_run_that_judges_an_item_twice_is_not_compared() -> None:
    agreement = JudgeAgreement(MeasureJudgeAgreementRequest())
    agreement.add_run("run", scripts(0, [[None]]), by_sample=False)
    with pytest.raises(ServiceError, match="judges 't0/c0/executable' twice") as refused:
        agreement.add_run("run", scripts(0, [[True]]), by_sample=False)
    assert refused.value.violations[0].field == "run_ids"


def test_items_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_agreement, "MAX_ITEMS", 3)
    agreement = JudgeAgreement(MeasureJudgeAgreementRequest())
    agreement.add(scripts(0, [[True, False]] * 3))
    # What a single judge judged is not kept.
    single = JudgeAgreement(MeasureJudgeAgreementRequest())
    for task in range(5):
        single.add(scripts(task, [[True]]))
    with pytest.raises(ServiceError, match="more than 3 items") as refused:
        agreement.add(scripts(1, [[True, False]]))
    assert json.loads(refused.value.metadata["limit"]) == 3
