from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from dramaturg import conformance
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.judging.v1 import judge_service_pb2_grpc
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeRequest, JudgeResponse
from dramaturg.conformance import checked_role
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.contracts import JUDGE_SERVICE, implementation_contract, judge_contract
from dramaturg.judge.protocols import ANY_CRITERION
from dramaturg.judge.verdicts import failed, finding, passed, scored
from dramaturg.service.contract import Contract
from dramaturg.testing import serve


class Polite:
    name = "polite"
    version = "1.0.0"
    description = "Passes everything."
    criteria: Sequence[str] = ("polite", "short")
    capabilities: Sequence[str] = ()

    async def judge(self, item: JudgeItem) -> Assessment:
        return Assessment(verdicts=[passed(criterion) for criterion in item.criteria])


class AnyCriterion(Polite):
    criteria = ()
    capabilities = (ANY_CRITERION,)


class OffTheScale(AnyCriterion):
    async def judge(self, item: JudgeItem) -> Assessment:
        return Assessment(
            verdicts=[
                scored(criterion, 6) if criterion in item.scales else passed(criterion)
                for criterion in item.criteria
            ]
        )


class OffTheSteps(Polite):
    async def judge(self, item: JudgeItem) -> Assessment:
        found = finding(verdict_pb2.FINDING_KIND_REDUNDANT_STEP, "Idle.", steps=[len(item.candidate.steps)])
        return Assessment(verdicts=[failed(criterion, [found]) for criterion in item.criteria])


class Careless(judge_service_pb2_grpc.JudgeServiceServicer):
    """Checks nothing, answers the first candidate twice and the last one never, empty ones too."""

    async def Judge(self, request: JudgeRequest, context: Any) -> AsyncIterator[JudgeResponse]:
        verdicts = [passed("polite"), passed("short")]
        answered = request.candidates[:-1] if len(request.candidates) > 1 else request.candidates
        for one in (*answered, *answered[:1]):
            yield JudgeResponse(candidate_id=one.id, assessment=Assessment(verdicts=verdicts))


async def broken(contract: Contract, *criteria: str, name: str = "judge") -> dict[str, str]:
    """The checks that fail, with how."""
    async with serve(contract) as server:
        outcomes = await conformance.run(checked_role(name, criteria), server.target, timeout=20)
    return {one.check.name: one.failure for one in outcomes if one.broken}


async def test_a_judge_of_criteria_of_its_own_keeps_the_contract() -> None:
    assert await broken(judge_contract(Polite())) == {}
    assert await broken(judge_contract(Polite()), "polite") == {}
    assert await broken(judge_contract(AnyCriterion()), "witty", "brief") == {}


async def test_a_judge_that_lacks_a_criterion_of_its_role_is_told() -> None:
    assert "witty" in (await broken(judge_contract(Polite()), "witty"))["says-who-it-is"]
    assert "no_missing_steps" in (await broken(judge_contract(Polite()), name="critic"))["says-who-it-is"]
    assert "name some" in (await broken(judge_contract(AnyCriterion())))["says-who-it-is"]


async def test_findings_beyond_the_steps_are_found() -> None:
    failures = await broken(judge_contract(OffTheSteps()))
    assert "must ascend and be below" in failures["answers-each-candidate"]


async def test_a_careless_server_breaks_what_it_breaks() -> None:
    add = judge_service_pb2_grpc.add_JudgeServiceServicer_to_server
    failures = await broken(implementation_contract(JUDGE_SERVICE, add, Careless(), Polite()))
    assert {
        "answers-each-candidate",
        "judges-the-criteria-asked-for",
        "refuses-unknown-criteria",
        "says-where-answers-come-from",
        "defines-the-empty-candidate",
    } <= failures.keys()


@pytest.mark.parametrize(("name", "criteria"), [("poet", ()), ("critic", ("polite",)), ("graph", ())])
def test_what_cannot_be_checked_is_refused(name: str, criteria: Sequence[str]) -> None:
    with pytest.raises(ValueError, match=name):
        checked_role(name, criteria)


async def test_a_score_off_the_scale_is_found() -> None:
    failures = await broken(judge_contract(OffTheScale()), "polite", "short")
    assert failures == {"keeps-to-scales": "the score 6.0 is not from 1 to 5"}


async def test_a_judge_of_any_criterion_is_checked_without_naming_criteria() -> None:
    assert await broken(judge_contract(AnyCriterion()), name="rubric-judge") == {}
