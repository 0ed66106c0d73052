"""Our own services keep their contracts; a service with one fault fails exactly what the fault breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any

import grpc
import pytest

from dramaturg import conformance
from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeResponse
from dramaturg.api.common.v1.error_reason_pb2 import ERROR_REASON_UNSPECIFIED
from dramaturg.api.common.v1.script_pb2 import Script, Step
from dramaturg.api.generation.v1.edge_service_pb2 import PredictEdgesRequest, PredictEdgesResponse
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import (
    FindChallengingTurnRequest,
    FindChallengingTurnResponse,
)
from dramaturg.api.judging.v1.pair_judge_service_pb2 import (
    PREFERENCE_ABSTAIN,
    PREFERENCE_SECOND,
    ComparePairRequest,
    ComparePairResponse,
    RoleVote,
)
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyRequest, RateReplyResponse, Rating
from dramaturg.judge.roles import ROLES
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError
from dramaturg.testing import serve
from services.generation.app import App as GenerationApp
from tests.dramaturg.conformance.services import Method, compare, service
from tests.support.generation import endpoint, generation_settings
from tests.support.openai_server import OpenAIServer

FORM = frozenset(
    {
        "answers-well-formed",
        "answers-empty-input",
        "answers-the-largest-input",
        "bears-every-plane",
        "keeps-calls-apart",
    }
)
"""The checks that look at the form of an answer."""


async def broken(role: str, *contracts: Contract) -> dict[str, str]:
    """The checks that fail, with how."""
    async with serve(*contracts) as server:
        outcomes = await conformance.run(ROLES[role], server.target, timeout=10)
    assert len(outcomes) > 10
    return {one.check.name: one.failure for one in outcomes if one.broken}


def rate(change: Callable[[RateReplyRequest, RateReplyResponse], None]) -> Method:
    """Rates with 7, then changes the response."""

    async def answer(request: RateReplyRequest) -> RateReplyResponse:
        response = RateReplyResponse(rating=Rating(value=7.0))
        change(request, response)
        return response

    return answer


def too_high(_: RateReplyRequest, response: RateReplyResponse) -> None:
    response.rating.value = 11.0


def neither(_: RateReplyRequest, response: RateReplyResponse) -> None:
    response.rating.ClearField("value")


def wrong_name(_: RateReplyRequest, response: RateReplyResponse) -> None:
    response.rating.provenance.name = "another"


def paid_back(_: RateReplyRequest, response: RateReplyResponse) -> None:
    response.rating.provenance.completions.add()
    response.rating.provenance.usage.cost_usd = -5.0


def boundless(_: RateReplyRequest, response: RateReplyResponse) -> None:
    response.rating.provenance.completions.add()
    response.rating.provenance.usage.prompt_token_count = 1_000_000_000


def unpaid(_: RateReplyRequest, response: RateReplyResponse) -> None:
    response.rating.provenance.usage.completion_token_count = 1


def refuse(condition: Callable[[str], bool]) -> Callable[[RateReplyRequest, RateReplyResponse], None]:
    def change(request: RateReplyRequest, _: RateReplyResponse) -> None:
        if condition(request.response):
            raise ServiceError(grpc.StatusCode.INTERNAL, ERROR_REASON_UNSPECIFIED, "cannot")

    return change


@pytest.mark.parametrize(
    ("change", "failing", "message"),
    [
        (lambda *_: None, frozenset(), ""),
        (too_high, FORM, "11.0, which is not from 1 to 10"),
        (neither, FORM, "if and only if"),
        (wrong_name, {"says-where-answers-come-from"}, "provenance.name is 'another'"),
        (paid_back, {"reports-possible-usage"}, "usage.cost_usd is -5.0"),
        (boundless, {"reports-possible-usage"}, "1000000000 for 1 model calls"),
        (unpaid, {"reports-possible-usage"}, "1 for 0 model calls"),
        (refuse(lambda text: not text), {"answers-empty-input"}, "INTERNAL: cannot"),
        (refuse(lambda text: len(text) == 200_000), {"answers-the-largest-input"}, "INTERNAL: cannot"),
        (refuse(lambda text: max(text, default="") > "\U00100000"), {"bears-every-plane"}, "INTERNAL"),
    ],
)
async def test_a_faulty_judge_of_ratings_fails_what_it_breaks(
    change: Callable[[RateReplyRequest, RateReplyResponse], None], failing: AbstractSet[str], message: str
) -> None:
    failures = await broken("rating-judge", service("rating-judge", rate(change)))
    assert failures.keys() == failing
    assert all(message in failure for failure in failures.values())


async def test_a_server_that_a_cancelled_call_leaves_unable_to_answer_is_found() -> None:
    lock = asyncio.Lock()

    async def answer(request: RateReplyRequest) -> RateReplyResponse:
        if lock.locked():
            raise ServiceError(grpc.StatusCode.UNAVAILABLE, ERROR_REASON_UNSPECIFIED, "busy")
        if len(request.response) == 200_000:
            await lock.acquire()
            await asyncio.sleep(0.5)
            # Not in a finally: a call that is cancelled keeps the lock.
            lock.release()
        return RateReplyResponse(rating=Rating(value=7.0))

    assert (await broken("rating-judge", service("rating-judge", answer))).keys() == {"survives-cancellation"}


async def test_votes_of_another_call_are_found() -> None:
    latest = ComparePairRequest()

    async def answer(request: ComparePairRequest) -> ComparePairResponse:
        latest.CopyFrom(request)
        await asyncio.sleep(0.05)
        return compare(latest)

    failures = await broken("pair-judge", service("pair-judge", answer))
    assert failures.keys() == {"keeps-calls-apart"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"preference": PREFERENCE_SECOND}, "its preference is not that of its votes"),
        ({"first_vote_share": 0.5}, "its first_vote_share is not that of its votes"),
        ({"second_drpe_score": 0.5}, "its second_drpe_score is not that of its votes"),
        ({"votes": [RoleVote(preference=PREFERENCE_ABSTAIN)]}, ""),
    ],
)
async def test_votes_that_contradict_the_response_are_found(fields: dict[str, Any], message: str) -> None:
    async def answer(request: ComparePairRequest) -> ComparePairResponse:
        response = compare(request)
        for field in fields:
            response.ClearField(field)  # type: ignore[arg-type]
        response.MergeFrom(ComparePairResponse(**fields))
        return response

    failures = await broken("pair-judge", service("pair-judge", answer))
    assert failures.keys() == FORM
    assert all(message in failure for failure in failures.values())


async def test_a_role_that_nobody_asked_for_is_found() -> None:
    async def answer(request: ComparePairRequest) -> ComparePairResponse:
        response = compare(request)
        if not request.roles:
            response.votes[0].role.type = "Nobody"
        return response

    failures = await broken("pair-judge", service("pair-judge", answer))
    assert set(failures.values()) == {"its votes are not in the order of the roles"}


async def test_a_turn_that_is_not_there_and_a_dialogue_that_is_not_checked_are_found() -> None:
    async def answer(request: FindChallengingTurnRequest) -> FindChallengingTurnResponse:
        return FindChallengingTurnResponse(turn=len(request.utterances))

    failures = await broken("challenge-judge", service("challenge-judge", answer))
    assert failures.keys() == FORM | {"refuses-bad-requests"}
    assert failures["refuses-bad-requests"] == "the request was answered"


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (SynthesizeResponse(), "if and only if the script has no steps"),
        (SynthesizeResponse(script=Script(steps=[Step(text=" ")])), "a step without text"),
        (SynthesizeResponse(failure="None.", pool_ids=["b", "a"]), "not sorted"),
        (SynthesizeResponse(failure="None.", pool_ids=["other"]), "not candidates of the request"),
    ],
)
async def test_a_faulty_synthesizer_is_found(response: SynthesizeResponse, message: str) -> None:
    async def answer(_: Any) -> SynthesizeResponse:
        return SynthesizeResponse.FromString(response.SerializeToString())

    failures = await broken("synthesize", service("synthesize", answer))
    assert failures.keys() == FORM
    assert all(message in failure for failure in failures.values())


async def test_the_predictor_of_edges_keeps_its_contract() -> None:
    answer = {"reasoning": "So.", "edges": [{"before": 2, "after": 1}]}
    async with (
        OpenAIServer(lambda _: answer) as server,
        GenerationApp(generation_settings(providers={"p0": endpoint(server)})).open() as contracts,
    ):
        assert await broken("edges", *contracts) == {}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"graph": {}}, "the method is EDGE_METHOD_UNSPECIFIED"),
        ({"method": 1}, "if and only if it has no prediction"),
        ({"method": 2, "probabilities": [{"source_id": "x", "target_id": "y"}]}, "not of two events"),
        ({"method": 1, "graph": {"edges": [{"source_id": "x", "target_id": "x"}]}}, "not of two events"),
    ],
)
async def test_a_faulty_predictor_of_edges_is_found(fields: dict[str, Any], message: str) -> None:
    async def answer(_: PredictEdgesRequest) -> PredictEdgesResponse:
        return PredictEdgesResponse(**fields)

    failures = await broken("edges", service("edges", answer))
    assert failures.keys() == FORM
    assert all(message in failure for failure in failures.values())
