"""Repeats of judges: independent calls, one answer, and how far they agree."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.decision_pb2 import Decision
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_PANEL_SPLIT, Assessment, Verdict
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueResult, ReplyComparison
from dramaturg.api.evaluation.v1.pairs_pb2 import PairComparison, PairResult
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pairs_pb
from dramaturg.api.judging.v1.judge_service_pb2 import CriterionScale
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyRequest, RateReplyResponse, Rating
from dramaturg.client import DramaturgClient
from dramaturg.judge.verdicts import abstained, failed, passed, scored
from dramaturg.results.rows import flatten
from dramaturg.service.errors import ServiceError
from gateway.evaluations.dialogues.summary import DialoguesFigures
from gateway.evaluations.pairs.summary import PairsFigures
from gateway.evaluations.repeats import combine_assessments, combine_comparisons, combine_ratings, set_repeat
from gateway.evaluations.statistics import Statistics
from gateway.evaluations.verdict_figures import VerdictCounter
from tests.gateway.evaluations.test_dialogues import asked as dialogue
from tests.gateway.evaluations.test_dialogues import result as dialogue_result
from tests.support.evaluations import CALL, gateway_target
from tests.support.gateway import CALL as USAGE
from tests.support.gateway import (
    Asked,
    Fake,
    agents,
    all_pass,
    evaluate_result,
    gateway_client,
    scripts_request,
)

NO = abstained("ok", verdict_pb2.ABSTAIN_REASON_TIMED_OUT, "late")
YES, BAD = passed("ok", rationale="Fine.", confidence=0.9), failed("ok", rationale="Bad.")
FIRST, SECOND, TIE = pairs_pb.PREFERENCE_FIRST, pairs_pb.PREFERENCE_SECOND, pairs_pb.PREFERENCE_TIE
SCALE = CriterionScale(lowest=1, highest=5)
UNASKED = Statistics(lambda _: pytest.fail("nothing is asked"))


@pytest.mark.parametrize(
    ("repeats", "outcome", "measured"),
    [
        ([YES, YES, BAD], verdict_pb2.OUTCOME_PASS, 2 / 3),
        ([BAD, BAD, BAD], verdict_pb2.OUTCOME_FAIL, 1.0),
        ([YES, NO, YES], verdict_pb2.OUTCOME_PASS, 1.0),
        ([YES, NO, NO], verdict_pb2.OUTCOME_PASS, None),
        ([YES, BAD], verdict_pb2.OUTCOME_ABSTAIN, None),
        ([NO, NO], verdict_pb2.OUTCOME_ABSTAIN, None),
        ([scored("ok", 1), scored("ok", 5)], verdict_pb2.OUTCOME_SCORED, 0.0),
        ([scored("ok", 4), scored("ok", 4), NO], verdict_pb2.OUTCOME_SCORED, 1.0),
    ],
)
def test_verdicts_of_repeats_are_one_verdict(
    repeats: Sequence[Verdict], outcome: verdict_pb2.Outcome.ValueType, measured: float | None
) -> None:
    answers = [
        CandidateAssessment(
            judge="mine",
            assessment=Assessment(verdicts=[one], provenance=Provenance(name="mine", usage=USAGE)),
        )
        for one in repeats
    ]
    (verdict,) = combine_assessments(answers, {"ok": SCALE}).assessment.verdicts
    assert verdict.outcome == outcome
    assert (verdict.measured_confidence if verdict.HasField("measured_confidence") else None) == measured
    assert len(verdict.votes) == len(repeats)
    if outcome == verdict_pb2.OUTCOME_SCORED:
        assert verdict.score in {3, 4}
    if [*repeats] == [YES, BAD]:
        assert verdict.abstain_reason == ABSTAIN_REASON_PANEL_SPLIT
    if [*repeats] == [YES, YES, BAD]:
        # The judge's own word stays apart.
        assert verdict.confidence == pytest.approx(0.9)
        assert verdict.rationale == "Repeats: mine PASS, mine PASS, mine FAIL. Fine."


def test_ratings_and_comparisons_of_repeats_are_one() -> None:
    late = Rating(abstain_reason=verdict_pb2.ABSTAIN_REASON_TIMED_OUT)
    rating = combine_ratings([late, Rating(value=4), Rating(value=6)])
    assert (rating.value, rating.abstain_reason) == (5, 0)
    assert rating.measured_confidence == pytest.approx(1 - 1 / 4.5)
    assert combine_ratings([late, late]).abstain_reason == verdict_pb2.ABSTAIN_REASON_TIMED_OUT

    def compared(*preferences: pairs_pb.Preference.ValueType) -> pairs_pb.ComparePairResponse:
        return combine_comparisons(
            [
                pairs_pb.ComparePairResponse(
                    preference=one, votes=[pairs_pb.RoleVote(preference=one, confidence=0.5)]
                )
                for one in preferences
            ]
        )

    found = compared(FIRST, SECOND, FIRST, TIE)
    assert (found.preference, found.measured_confidence, found.first_vote_share) == (FIRST, 0.5, 1)
    assert (found.first_drpe_score, found.second_drpe_score) == (0.5, 0)
    tie = pairs_pb.ComparePairResponse(preference=TIE, votes=[pairs_pb.RoleVote(preference=TIE)])
    unsure = combine_comparisons([tie, tie])
    assert (unsure.preference, unsure.HasField("first_drpe_score")) == (TIE, False)
    split = compared(FIRST, SECOND)
    assert split.preference == pairs_pb.PREFERENCE_ABSTAIN
    assert split.votes[0].abstain_reason == ABSTAIN_REASON_PANEL_SPLIT


def test_the_agreement_of_repeats_is_counted_by_model_and_criterion() -> None:
    def repeated(criterion: str, measured: float) -> Verdict:
        verdict = passed(criterion)
        verdict.measured_confidence = measured
        return verdict

    counter = VerdictCounter()
    counter.add([("a", repeated("ok", 1.0)), ("a", repeated("ok", 0.6)), ("b", passed("ok"))])
    found = {(one.model, one.criterion): one for one in counter.figures({})}
    assert found["a", "ok"].repeated_count == 2
    assert found["a", "ok"].repeat_agreement == pytest.approx(0.8)
    assert not found["b", "ok"].HasField("repeat_agreement")
    assert (found["", "ok"].repeated_count, found["", "ok"].verdict_count) == (2, 3)


def test_the_agreement_of_repeats_is_counted_by_model_of_ratings_and_by_judge_of_comparisons() -> None:
    def result(*measured: float, models: Sequence[str] = ("a", "b")) -> DialogueResult:
        made = DialogueResult(
            comparisons=[ReplyComparison(judge="j", first_model=models[0], second_model=models[1])]
        )
        made.comparisons[0].comparison.preference = FIRST
        for model, judge in product(models, ("j", "k")):
            made.ratings.add(model=model, judge=judge).rating.value = 4
        for rated, one in zip(made.ratings, measured, strict=False):
            rated.rating.measured_confidence = one
        if measured:
            made.comparisons[0].comparison.measured_confidence = measured[0]
        return made

    figures, summary = DialoguesFigures(keep_aced=False), Summary()
    figures.add([result(1.0, 0.5), result(0.75), result()])
    figures.write({}, summary, UNASKED)
    rated = {one.model: one for one in summary.dialogues.ratings if one.group == "all"}
    assert (rated["a"].repeated_count, rated["a"].repeat_agreement) == (3, 0.75)
    assert (rated["b"].repeated_count, rated["b"].HasField("repeat_agreement")) == (0, False)
    (compared,) = summary.dialogues.pairs
    assert (compared.repeated_count, compared.repeat_agreement) == (2, 0.875)


def test_the_agreement_of_repeats_is_counted_by_method_of_pairs() -> None:
    def result(measured: float | None) -> PairResult:
        compared = pairs_pb.ComparePairResponse(preference=FIRST, measured_confidence=measured)
        return PairResult(comparisons=[PairComparison(method="llm", judge="j", comparison=compared)])

    figures, summary = PairsFigures(seed=0), Summary()
    figures.add([("1", result(1.0)), ("2", result(0.5)), ("3", result(None))])
    figures.write({}, summary, UNASKED)
    found = {one.method: one for one in summary.pairs.methods}
    assert (found["llm"].pair_count, found["llm"].repeated_count) == (3, 2)
    assert found["llm"].repeat_agreement == 0.75
    assert not found["longer"].HasField("repeat_agreement")


async def test_a_judge_of_verdicts_is_asked_independently() -> None:
    options: list[JudgeOptions] = []

    async def judge(asked: Asked) -> Assessment:
        options.append(asked.options)
        assessment = all_pass("critic")
        if asked.options.repeat_index == 8:
            assessment.verdicts[0].CopyFrom(failed(assessment.verdicts[0].criterion, rationale="No."))
        assessment.verdicts[1].measured_confidence = 0.123
        return assessment

    request = scripts_request(1, roles=["critic"], options=JudgeOptions(repeats=3, repeat_index=2))
    request.options.sampling.CopyFrom(Sampling(seed=5))
    async with gateway_client(*agents(Fake("critic", judge))) as client:
        result = await evaluate_result(client, request)
    assert sorted(one.repeat_index for one in options) == [6, 7, 8]
    assert sorted(one.sampling.seed for one in options) == [5, 6, 7]
    assert {one.sampling.temperature for one in options} == {1.0}
    assert {one.repeats for one in options} == {0}
    (candidate,) = result.candidates
    (assessed,) = candidate.assessments
    assert [vote.judge for vote in candidate.verdicts[0].votes] == ["fake"] * 3
    assert [one.measured_confidence for one in candidate.verdicts] == [pytest.approx(2 / 3), 1, 1]
    assert assessed.assessment.provenance.usage.provider_call_count == 3
    assert len(assessed.assessment.provenance.completions) == 3
    rows = list(flatten(RunSample(scripts=result)))
    assert rows[0].measured_confidence == pytest.approx(2 / 3)
    assert not rows[0].HasField("confidence")


def test_the_largest_seed_has_repeats() -> None:
    requested = JudgeOptions(repeats=3, sampling=Sampling(seed=2**63 - 1))
    seeds = set()
    for repeat in range(3):
        options = JudgeOptions(sampling=requested.sampling)
        set_repeat(options, requested, repeat)
        seeds.add(options.sampling.seed)
    assert len(seeds) == 3


async def test_a_rating_judge_is_asked_independently() -> None:
    asked: list[RateReplyRequest] = []

    async def rate(request: RateReplyRequest) -> RateReplyResponse:
        asked.append(request)
        return RateReplyResponse(rating=Rating(value=4 + 2 * request.options.repeat_index, provenance=CALL))

    request = dialogue(models=["a"], options=JudgeOptions(repeats=2))
    (rated,) = (await dialogue_result(request, RateReply=rate)).ratings
    assert (rated.rating.value, rated.rating.provenance.usage.provider_call_count) == (5, 2)
    assert len(asked) == 2


async def test_repeats_without_judges_are_refused() -> None:
    request = EvaluateDecisionsRequest(
        decision=Decision(goal="Go out", option_1="walk", option_2="ride", scenario="It rains."),
        models=["a"],
        options=JudgeOptions(repeats=2),
    )

    async def choose(_: Any) -> None:
        raise AssertionError

    async with (
        gateway_target({"author": {"ChooseOption": choose}}) as target,
        DramaturgClient(target) as client,
    ):
        with pytest.raises(ServiceError) as refused:
            await anext(client.evaluate_decisions(request))
    assert [one.field for one in refused.value.violations] == ["options.repeats"]
