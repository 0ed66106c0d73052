"""The figures of texts: verdicts, scores and panels."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Verdict
from dramaturg.api.evaluation.v1.run_pb2 import SAMPLE_STATE_SUCCEEDED, RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions, TagGrouping
from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion, TextResult, TextsResult
from dramaturg.api.judging.v1.judge_service_pb2 import CriterionScale
from dramaturg.judge.verdicts import abstained, failed, finding, passed, scored
from dramaturg.kinds.texts.tables import sections
from dramaturg.results.rows import flatten
from tests.support.evaluation_samples import judged_text
from tests.support.texts import CLEAR, POLITE, texts_client

REFUSED = verdict_pb2.ABSTAIN_REASON_REFUSED


def sample(index: int, *texts: TextResult, level: str = "", **fields: Any) -> RunSample:
    result = TextsResult(**{"texts": texts, "criteria": [POLITE, CLEAR], **fields})
    tags = {"level": level} if level else {}
    return RunSample(index=index, state=SAMPLE_STATE_SUCCEEDED, texts=result, tags=tags)


def text(model: str, *verdicts: Verdict) -> TextResult:
    return TextResult(text_id=model, model=model, verdicts=verdicts)


async def summarize(*samples: RunSample, tags: str = "") -> Summary:
    groupings = [TagGrouping(tags=[tags])] if tags else []
    async with texts_client() as client:
        return await client.summarize(samples, SummaryOptions(groupings=groupings))


SAMPLES = [
    sample(
        0,
        text("a", passed("polite"), scored("clear", 5)),
        text("b", failed("polite"), scored("clear", 1)),
        level="1",
    ),
    sample(
        1,
        text("a", passed("polite"), scored("clear", 4)),
        text("b", abstained("polite", REFUSED), scored("clear", 3)),
        level="2",
    ),
    sample(
        2,
        text("a", failed("polite"), abstained("clear", REFUSED)),
        text("b", failed("polite"), scored("clear", 2)),
        level="2",
    ),
]


async def test_verdicts_and_scores_have_figures_by_model_and_criterion() -> None:
    summary = await summarize(*SAMPLES)
    assert summary.texts.text_count == 6
    verdicts = {(one.model, one.all_models, one.criterion): one for one in summary.texts.verdicts}
    polite = verdicts["a", False, "polite"]
    assert (polite.pass_count, polite.fail_count, polite.verdict_count) == (2, 1, 3)
    assert polite.pass_rate.value == pytest.approx(2 / 3)
    assert "clear" not in {criterion for _, _, criterion in verdicts}
    of_b = verdicts["b", False, "polite"]
    assert dict(of_b.abstentions_by_reason) == {"REFUSED": 1}
    assert of_b.pass_rate_lowest == 0
    assert of_b.pass_rate_highest == pytest.approx(1 / 3)
    scores = {(one.model, one.all_models): one for one in summary.texts.scores}
    of_a = scores["a", False]
    assert (of_a.criterion, of_a.lowest, of_a.highest) == ("clear", 1, 5)
    assert (of_a.verdict_count, of_a.score_count, of_a.mean.value, of_a.mean.count) == (3, 2, 4.5, 2)
    assert dict(of_a.abstentions_by_reason) == {"REFUSED": 1}
    assert of_a.mean_lowest == pytest.approx(10 / 3)
    assert of_a.mean_highest == pytest.approx(14 / 3)
    assert of_a.mean.interval_method == "student-t, logit, clustered by sample"
    everything = scores["", True]
    assert (everything.score_count, everything.mean.value) == (5, 3)


async def test_the_leaderboard_ranks_by_all_criteria_on_one_scale() -> None:
    summary = await summarize(*SAMPLES)
    first, second = summary.leaderboard
    assert (first.rank, first.model) == (1, "a")
    assert first.mean == pytest.approx((1 + 1 + 0 + 1 + 0.75) / 5)  # 5 of 1 to 5 is 1, 4 is 0.75
    assert second.model == "b"
    assert second.mean == pytest.approx((0 + 0 + 0 + 0.5 + 0.25) / 5)
    assert summary.leaderboard_measure == ""


async def test_groups_have_figures_of_their_own() -> None:
    summary = await summarize(*SAMPLES, tags="level")
    grouped = {
        one.tags["level"]: one.mean.value for one in summary.texts.scores if one.tags and one.all_models
    }
    assert grouped == {"1": 3, "2": 3}


async def test_scales_are_not_pooled() -> None:
    other = RubricCriterion(id="clear", description="x", scale=CriterionScale(lowest=0, highest=10))
    summary = await summarize(
        sample(0, text("a", scored("clear", 5))), sample(1, text("a", scored("clear", 5)), criteria=[other])
    )
    scales = sorted((one.lowest, one.highest) for one in summary.texts.scores if one.all_models)
    assert scales == [(0, 10), (1, 5)]


async def test_the_agreement_of_repeats_has_its_mean_and_number() -> None:
    repeated = [scored("clear", 5), scored("clear", 2)]
    for verdict, measured in zip(repeated, (1.0, 0.5), strict=True):
        verdict.measured_confidence = measured
    summary = await summarize(*(sample(place, text("a", one)) for place, one in enumerate(repeated)))
    (of_a,) = (one for one in summary.texts.scores if not one.all_models)
    assert (of_a.repeated_count, of_a.repeat_agreement) == (2, 0.75)


async def test_judges_of_a_panel_are_compared() -> None:
    summary = await summarize(
        sample(
            0,
            judged_text("a", [passed("polite"), scored("clear", 5)], [failed("polite"), scored("clear", 2)]),
        ),
        sample(
            1,
            judged_text(
                "a",
                [passed("polite"), scored("clear", 4)],
                [passed("polite"), abstained("clear", REFUSED)],
            ),
        ),
    )
    clear, polite = summary.texts.panels
    assert (polite.criterion, polite.text_count, polite.differing_count) == ("polite", 2, 1)
    assert polite.differing_share == 0.5
    assert not polite.HasField("mean_difference")
    assert (clear.text_count, clear.differing_count, clear.mean_difference) == (1, 1, 3)
    assert {one.judge for one in summary.judges} == {"j0", "j1"}


@pytest.mark.parametrize("score", [math.nan, math.inf, 0.5, 6.0])
async def test_a_score_off_its_scale_has_no_value(score: float) -> None:
    """Results of other origin are not checked before."""
    stray = Verdict(criterion="clear", outcome=verdict_pb2.OUTCOME_SCORED, score=score)
    summary = await summarize(sample(0, judged_text("a", [stray], [scored("clear", 2)])))
    (pooled,) = [one for one in summary.texts.scores if one.all_models]
    assert pooled.score_count == 0
    assert dict(pooled.abstentions_by_reason) == {"UNPARSABLE": 1}
    assert not summary.texts.panels
    assert dict(summary.abstentions_by_reason) == {"UNPARSABLE": 1}
    assert not summary.leaderboard[0].HasField("mean")


def test_a_score_is_flattened_to_its_place_on_the_scale() -> None:
    rows = flatten(
        sample(0, text("a", passed("polite"), scored("clear", 4)), text("b", abstained("clear", REFUSED)))
    )
    assert [(row.measure, row.outcome, row.label) for row in rows] == [
        ("polite", verdict_pb2.OUTCOME_PASS, ""),
        ("clear", verdict_pb2.OUTCOME_UNSPECIFIED, "4 of 1 to 5"),
        ("clear", verdict_pb2.OUTCOME_ABSTAIN, ""),
    ]
    assert [row.value for row in rows if row.HasField("value")] == [1, 0.75]


def test_a_scale_without_extent_abstains() -> None:
    broken = RubricCriterion(id="clear", description="x", scale=CriterionScale(lowest=3, highest=3))
    (row,) = flatten(sample(0, text("a", scored("clear", 3)), criteria=[broken]))
    assert row.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNPARSABLE
    assert not row.HasField("value")


async def test_findings_are_counted_by_model_kind_and_severity() -> None:
    kind = verdict_pb2.FINDING_KIND_CRITERION_NOT_MET
    minor = finding(kind, "cold", severity=verdict_pb2.SEVERITY_MINOR)
    weak = abstained("polite", REFUSED, findings=[minor])
    summary = await summarize(
        sample(0, text("a", failed("polite", [minor, finding(kind, "curt")])), text("b", passed("polite"))),
        sample(1, text("a", failed("polite", [minor])), text("b", weak)),
        sample(2, text("a", passed("polite")), text("b", failed("polite", [minor]))),
    )
    found = [
        (one.model, one.output_count, one.affected_count, one.finding_count, dict(one.count_by_severity))
        for one in summary.texts.findings
    ]
    assert found == [
        ("a", 3, 2, 3, {"minor": 2}),
        ("b", 3, 1, 1, {"minor": 1}),
        ("", 6, 3, 4, {"minor": 3}),
    ]
    assert {one.kind for one in summary.texts.findings} == {kind}
    (section,) = [one for one in sections(summary) if one.title == "Findings"]
    assert [[cell.text for cell in row.cells][:3] for row in section.tables[0].rows] == [
        ["criterion not met", "a", "3"],
        ["criterion not met", "b", "1"],
        ["criterion not met", "all models", "4"],
    ]
