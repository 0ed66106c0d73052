"""How methods that compare texts go with people, measured by a real AlignmentService."""

from __future__ import annotations

from statistics import correlation

import pytest

from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.cli.local import service_channel
from dramaturg.summaries.text_agreement import measure
from dramaturg.summaries.texts import Judgement, Pair, TextsAggregator

PEOPLE = [1, 0, 1, 1, 0, 0, 1, 0]
GOOD = [0.9, 0.2, 0.8, 0.7, 0.1, 0.3, 0.6, 0.2]
BAD = [0.4, 0.6, 0.9, 0.2, 0.5, 0.1, 0.7, 0.6]


@pytest.mark.parametrize("baseline", ["longer", "zero-shot"])
@pytest.mark.parametrize(("roles", "other", "sign"), [(GOOD, BAD, 1), (BAD, GOOD, -1)])
async def test_williams_t_is_above_zero_where_the_roles_go_better_with_people(
    baseline: str, roles: list[float], other: list[float], sign: int
) -> None:
    aggregator = TextsAggregator()
    for line, human in enumerate(PEOPLE):
        preference = pb.PREFERENCE_FIRST if human else pb.PREFERENCE_SECOND
        aggregator.pairs[str(line)] = Pair(preference, "")
        for method, scores in (("roles", roles), (baseline, other)):
            judgement = Judgement(preference, scores[line])
            aggregator.judgements.setdefault(method, {})[str(line)] = judgement
    async with service_channel("alignment", None) as channel:
        figures = await measure(AlignmentServiceStub(channel), aggregator, seed=1)
    (test,) = figures["williams"]["tests"]
    # The order is that of the roles and the best baseline, whatever the alphabet says of their names.
    assert (test["first"], test["second"]) == ("roles", baseline)
    assert test["williams_t"] * sign > 1
    assert test["kendall_difference"] * sign > 0
    low, high = test["kendall_difference_interval"]
    assert low <= test["kendall_difference"] <= high
    assert figures["methods"]["roles"]["correlation"]["pearson"] == pytest.approx(correlation(PEOPLE, roles))
