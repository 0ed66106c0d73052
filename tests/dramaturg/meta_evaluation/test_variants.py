from __future__ import annotations

import pytest

from dramaturg.api.judging.v1.judge_service_pb2 import JudgeRequest
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairRequest
from dramaturg.judge import criteria
from dramaturg.judge.roles import CRITIC, PAIR_JUDGE, RATING_JUDGE, RUBRIC_JUDGE
from dramaturg.meta_evaluation.cases import BenchSet
from dramaturg.meta_evaluation.variants import VARIANTS


@pytest.mark.parametrize("role", [CRITIC, PAIR_JUDGE, RATING_JUDGE, RUBRIC_JUDGE])
@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "position"])
def test_a_variant_differs_in_the_judged_text_alone(role: object, name: str) -> None:
    cases = BenchSet().cases([role.name])  # type: ignore[attr-defined]
    pairs = VARIANTS[name](cases)
    assert pairs
    for first, second in pairs:
        assert (first.id, first.faults) == (second.id, second.faults)
        assert first.request != second.request
        if name != "formatting":
            assert not {criteria.NO_REDUNDANT_STEPS, criteria.NO_DUPLICATE_STEPS} & set(first.faults)
            assert first.language == "en"
        if name == "injection":
            assert any(first.faults.values())
        if isinstance(first.request, ComparePairRequest):
            assert isinstance(second.request, ComparePairRequest)
            assert first.request.first == second.request.first


def test_the_position_of_the_judged_candidate_differs() -> None:
    for first, second in VARIANTS["position"](BenchSet().cases([CRITIC.name])):
        assert isinstance(first.request, JudgeRequest)
        assert isinstance(second.request, JudgeRequest)
        before, after = ([one.id for one in made.candidates] for made in (first.request, second.request))
        assert (before, after) == (["candidate", "company"], ["company", "candidate"])
