"""The correlations of methods that compare texts with people, by a real alignment service."""

from __future__ import annotations

import asyncio
from statistics import correlation

import pytest

from dramaturg.api.evaluation.v1.pairs_pb2 import PairComparison, PairResult
from dramaturg.api.evaluation.v1.run_pb2 import SAMPLE_STATE_SUCCEEDED, RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.client import DramaturgClient
from tests.support.evaluations import gateway_in_a_thread

PEOPLE = [1, 0, 1, 1, 0, 0, 1, 0]
GOOD = [0.9, 0.2, 0.8, 0.7, 0.1, 0.3, 0.6, 0.2]
BAD = [0.4, 0.6, 0.9, 0.2, 0.5, 0.1, 0.7, 0.6]


def sample(index: int, roles: float, baseline: str, other: float) -> RunSample:
    preference = pb.PREFERENCE_FIRST if PEOPLE[index] else pb.PREFERENCE_SECOND
    comparison = pb.ComparePairResponse(preference=preference, first_vote_share=roles)
    result = PairResult(
        human_preference=preference,
        longer=pb.PREFERENCE_TIE,
        comparisons=[PairComparison(method="roles", judge="j", comparison=comparison)],
        text_metrics=[baseline],
        metric_differences={baseline: other},
    )
    return RunSample(index=index, state=SAMPLE_STATE_SUCCEEDED, pair=result)


async def summarize(target: str, samples: list[RunSample]) -> Summary:
    async with DramaturgClient(target) as client:
        return await client.summarize(samples, SummaryOptions(seed=1))


@pytest.mark.parametrize("baseline", ["bleu", "zero-shot"])
@pytest.mark.parametrize(("roles", "other", "sign"), [(GOOD, BAD, 1), (BAD, GOOD, -1)])
def test_williams_t_is_above_zero_if_the_roles_correlate_more_strongly_with_people(
    baseline: str, roles: list[float], other: list[float], sign: int
) -> None:
    samples = [sample(index, roles[index], baseline, other[index]) for index in range(len(PEOPLE))]
    with gateway_in_a_thread({}, alignment=True) as target:
        found = asyncio.run(summarize(target, samples)).pairs
    assert found.best_baseline == baseline
    (test,) = found.correlations.differences
    # The order is that of the roles and the best baseline, not that of their names.
    assert (test.first_measure, test.second_measure) == ("roles", baseline)
    assert test.williams_t.value * sign > 1
    kendall = test.kendall_difference
    assert kendall.value * sign > 0
    assert kendall.lower <= kendall.value <= kendall.upper
    (mine,) = [one for one in found.correlations.measures if one.measure == "roles"]
    assert mine.pearson.value == pytest.approx(correlation(PEOPLE, roles))
