"""Shadows in the summary, as callers of a gateway see them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dramaturg.api.common.v1.provenance_pb2 import Provenance, Usage
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_TIMED_OUT, Assessment, Verdict
from dramaturg.api.evaluation.v1.run_pb2 import SAMPLE_STATE_SUCCEEDED, RunSample
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    SHADOW_MISS_LATE,
    SHADOW_MISS_QUEUE_FULL,
    CandidateAssessment,
    CandidateResult,
    ScriptsResult,
    ShadowAssessment,
    ShadowMiss,
)
from dramaturg.api.evaluation.v1.summary_pb2 import JudgeComparison, SummaryOptions
from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion, TextResult, TextsResult
from dramaturg.api.judging.v1.judge_service_pb2 import CriterionScale
from dramaturg.judge.verdicts import abstained, failed, passed, scored
from tests.support.stored_runs import client

PASS, FAIL = passed("adequacy"), failed("adequacy")
ABSTAIN = abstained("adequacy", ABSTAIN_REASON_TIMED_OUT, "Late.")


def assessment(verdict: Verdict, cost: float) -> Assessment:
    return Assessment(verdicts=[verdict], provenance=Provenance(usage=Usage(cost_usd=cost)))


def candidate(
    name: str, first: Verdict, second: Verdict | ShadowMiss.ValueType, panel: str = ""
) -> CandidateResult:
    """A candidate with the verdict of the judge "a" and that of its shadow "b", or why there is none."""
    judged = CandidateAssessment(
        candidate_id=name, role="critic", judge="a", assessment=assessment(first, 0.25), panel=panel
    )
    judged.latency.FromMilliseconds(100)
    made = CandidateResult(candidate_id=name, model="m", verdicts=[first], assessments=[judged])
    shadow = made.shadows.add(role="critic", judge="b", shadow_of=panel or "a")
    if isinstance(second, Verdict):
        shadow.assessment.CopyFrom(assessment(second, 1))
        shadow.latency.FromMilliseconds(300)
    else:
        shadow.miss = second
    return made


def sample(index: int, task: str, *candidates: CandidateResult) -> RunSample:
    result = ScriptsResult(candidates=candidates)
    result.task.id = task
    return RunSample(
        index=index, line=index + 1, sample_id=f"s{index}", state=SAMPLE_STATE_SUCCEEDED, scripts=result
    )


async def compared(folder: Path, *samples: RunSample, roles: str = "alignment") -> JudgeComparison:
    async with client(folder, *roles.split()) as gateway:
        summary = await gateway.summarize(samples, SummaryOptions())
    (comparison,) = summary.judge_comparisons
    assert (comparison.role, comparison.second_judge) == ("critic", "b")
    return comparison


async def test_equal_pass_rates_are_not_agreement(tmp_path: Path) -> None:
    found = await compared(
        tmp_path,
        sample(0, "t0", candidate("x", PASS, FAIL), candidate("y", FAIL, PASS)),
        sample(1, "t1", candidate("x", PASS, FAIL), candidate("y", FAIL, PASS)),
        sample(2, "t2", candidate("x", PASS, PASS)),
    )
    whole = found.figures[-1]
    assert [one.criterion for one in found.figures] == ["adequacy", ""]
    assert (whole.judged_count, whole.agreement.value) == (5, 0.2)
    assert whole.first_pass_rate.value == whole.second_pass_rate.value == 0.6
    assert (whole.pass_to_fail_count, whole.fail_to_pass_count, found.flip_count) == (2, 2, 4)
    assert whole.cohen_kappa.value == pytest.approx((0.2 - 0.52) / 0.48)
    flip = found.flips[1]
    assert (flip.sample_index, flip.sample_id, flip.candidate_id) == (0, "s0", "y")
    assert (flip.criterion, flip.first, flip.second) == ("adequacy", "FAIL", "PASS")


async def test_the_interval_is_clustered_by_task(tmp_path: Path) -> None:
    """Repeats of two tasks are two clusters, not ten."""
    halves = [
        sample(index, "even" if index % 2 else "odd", candidate("x", PASS, PASS)) for index in range(10)
    ]
    repeated = await compared(tmp_path, *halves)
    distinct = await compared(
        tmp_path, *(sample(index, f"t{index}", candidate("x", PASS, PASS)) for index in range(10))
    )
    few, many = (one.figures[-1].agreement for one in (repeated, distinct))
    assert few.value == many.value == 1
    # Clopper and Pearson's bounds of two and of ten tasks that all agree.
    assert few.lower == pytest.approx(0.025 ** (1 / 2))
    assert many.lower == pytest.approx(0.025 ** (1 / 10))
    assert few.interval_method.endswith("clustered by task")


async def test_cost_latency_abstentions_and_items_that_were_not_seen(tmp_path: Path) -> None:
    found = await compared(
        tmp_path,
        sample(0, "t0", candidate("x", PASS, PASS), candidate("y", PASS, ABSTAIN)),
        sample(1, "t1", candidate("x", PASS, SHADOW_MISS_LATE), candidate("y", PASS, SHADOW_MISS_QUEUE_FULL)),
    )
    assert found.item_count == 4
    assert dict(found.unseen_by_reason) == {"LATE": 1, "QUEUE_FULL": 1}
    assert found.figures[-1].judged_count == 1
    first, second = found.first, found.second
    assert (first.assessment_count, first.usage.cost_usd, first.mean_latency_seconds) == (2, 0.5, 0.1)
    assert (second.assessment_count, second.usage.cost_usd, second.largest_latency_seconds) == (2, 2, 0.3)
    assert dict(second.abstentions_by_reason) == {"TIMED_OUT": 1}
    assert not first.abstentions_by_reason


async def test_a_shadow_of_a_panel_is_compared_with_the_verdict_of_the_panel(tmp_path: Path) -> None:
    member = candidate("x", FAIL, PASS, panel="trio")
    del member.verdicts[:]
    member.verdicts.append(PASS)
    found = await compared(tmp_path, sample(0, "t0", member))
    assert found.first_judge == "trio"
    assert (found.figures[-1].agreement.value, found.flip_count) == (1, 0)


async def test_scores_are_compared_as_scores(tmp_path: Path) -> None:
    scale = CriterionScale(lowest=1, highest=5)
    text = TextResult(text_id="x", verdicts=[scored("clear", 4)])
    text.assessments.add(role="rubric-judge", judge="a", assessment=assessment(scored("clear", 4), 0))
    text.shadows.append(
        ShadowAssessment(
            role="rubric-judge", judge="b", shadow_of="a", assessment=assessment(scored("clear", 2), 0)
        )
    )
    result = TextsResult(texts=[text], criteria=[RubricCriterion(id="clear", description="c", scale=scale)])
    async with client(tmp_path, "alignment") as gateway:
        summary = await gateway.summarize([RunSample(state=SAMPLE_STATE_SUCCEEDED, texts=result)])
    (found,) = summary.judge_comparisons
    assert [(flip.first, flip.second) for flip in found.flips] == [("4", "2")]
    assert found.figures[-1].agreement.value == 0
    assert not found.figures[-1].HasField("cohen_kappa")
