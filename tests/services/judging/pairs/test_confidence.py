"""Equation 3 of DRPE, from the tokens of a real HTTP server to the scores of equation 4."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import pytest

from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from tests.support.openai_server import Answer, Body, OpenAIServer
from tests.support.readers import entries, shown, with_tokens

if TYPE_CHECKING:
    from dramaturg.api.judging.v1.pair_judge_service_pb2_grpc import PairJudgeServiceAsyncStub

Serve = Callable[..., AbstractAsyncContextManager[tuple["PairJudgeServiceAsyncStub", OpenAIServer]]]

ROLES = (pb.Role(type="Student", description="Learns."), pb.Role(type="Critic", description="Reads."))
STRUCTURE = -9.0
"""The log-probability of tokens that belong to no role: it must not be counted."""


def request(**fields: Any) -> pb.ComparePairRequest:
    return pb.ComparePairRequest(
        **{
            "source": "s",
            "first": "Alpha",
            "second": "Beta",
            "roles": ROLES,
            "order": pb.PRESENTATION_ORDER_AS_GIVEN,
            **fields,
        }
    )


def tokens_of(parts: Sequence[tuple[str, float]], **fields: Any) -> Answer:
    return Answer("".join(text for text, _ in parts), tokens=list(parts), **fields)


BATCH = tokens_of(
    [
        ('{"role_1": {"reason": "', STRUCTURE),
        ("Alpha", -0.1),
        (" is", -0.2),
        (' clear."', -0.3),  # straddles the end of the reason: counted whole
        (', "vote": ', STRUCTURE),
        ('"1"', -0.4),  # straddles both ends of the vote
        ('}, "role_2": {"reason": ', STRUCTURE),
        ('"B', -1.0),
        ("eta", -2.0),
        ('", "vote": "', STRUCTURE),
        ("2", -3.0),
        ('"}}', STRUCTURE),
    ]
)
STUDENT, CRITIC = math.exp(-(0.1 + 0.2 + 0.3 + 0.4) / 4), math.exp(-(1.0 + 2.0 + 3.0) / 3)


async def test_a_vote_is_as_likely_as_its_own_tokens(serve: Serve) -> None:
    async with serve(lambda body: BATCH) as (stub, server):
        response = await stub.ComparePair(request())
    assert server.bodies[0]["logprobs"] is True
    assert [vote.ballots[0].confidence for vote in response.votes] == pytest.approx([STUDENT, CRITIC])
    assert [vote.confidence for vote in response.votes] == pytest.approx([STUDENT, CRITIC])
    assert response.first_drpe_score == pytest.approx(STUDENT)
    assert response.second_drpe_score == pytest.approx(CRITIC)


async def test_over_both_orders_it_is_the_mean(serve: Serve) -> None:
    def respond(body: Body) -> Answer:
        first = shown(body).text_1 == "Alpha"
        logprob = -0.5 if first else -1.0
        return with_tokens(entries(shown(body), lambda *_: "1" if first else "2"), lambda token: logprob)

    async with serve(respond) as (stub, _):
        response = await stub.ComparePair(request(order=pb.PRESENTATION_ORDER_BOTH))
    mean = (math.exp(-0.5) + math.exp(-1.0)) / 2
    assert [vote.confidence for vote in response.votes] == pytest.approx([mean] * 2)
    assert response.first_drpe_score == pytest.approx(2 * mean)
    assert response.second_drpe_score == 0.0


async def test_one_judge_without_a_role_has_one_too(serve: Serve) -> None:
    answer = tokens_of([('{"reason": "', STRUCTURE), ("So.", -0.5), ('", "vote": ', -9.0), ('"tie"}', -1.5)])
    async with serve(lambda body: answer) as (stub, _):
        response = await stub.ComparePair(request(roles=()))
    assert response.votes[0].confidence == pytest.approx(math.exp(-1.0))


WITHOUT = {
    "no tokens": Answer(BATCH.text, tokens=[]),
    "tokens of another text": Answer(BATCH.text, tokens=[("Something", -0.1), (" else", -0.1)]),
    "mended JSON": tokens_of([(BATCH.text.replace('"', "'"), -0.1)]),
}


@pytest.mark.parametrize("answer", WITHOUT.values(), ids=WITHOUT)
async def test_without_the_tokens_of_the_answer_there_is_none(serve: Serve, answer: Answer) -> None:
    async with serve(lambda body: answer) as (stub, _):
        response = await stub.ComparePair(request())
    assert [vote.preference for vote in response.votes] == [pb.PREFERENCE_FIRST, pb.PREFERENCE_SECOND]
    assert not any(vote.HasField("confidence") for vote in response.votes)
    assert not any(ballot.HasField("confidence") for vote in response.votes for ballot in vote.ballots)
    assert not response.HasField("first_drpe_score")
    assert not response.HasField("second_drpe_score")
    assert response.first_vote_share == 0.5


async def test_tokens_need_not_be_asked_for(serve: Serve) -> None:
    async with serve(lambda body: BATCH, logprobs=False) as (stub, server):
        response = await stub.ComparePair(request())
    assert "logprobs" not in server.bodies[0]
    assert not response.votes[0].HasField("confidence")


async def test_what_stands_around_the_answer_does_not_count(serve: Serve) -> None:
    assert BATCH.tokens is not None
    around = tokens_of([("Here: \n```json\n", -7.0), *BATCH.tokens, ("\n```", -7.0)])
    async with serve(lambda body: around) as (stub, _):
        response = await stub.ComparePair(request())
    assert [vote.confidence for vote in response.votes] == pytest.approx([STUDENT, CRITIC])


async def test_a_repaired_vote_has_the_confidence_of_the_repair(serve: Serve) -> None:
    def respond(body: Body) -> Answer:
        listed = entries(shown(body), lambda *_: "1")
        if len(listed) == 2:
            return with_tokens({"role_1": listed["role_1"]}, lambda token: -0.5)
        return with_tokens(listed, lambda token: -2.0)

    async with serve(respond) as (stub, _):
        response = await stub.ComparePair(request())
    assert [vote.confidence for vote in response.votes] == pytest.approx([math.exp(-0.5), math.exp(-2.0)])


async def test_a_rare_character_cut_into_tokens_costs_no_confidence(serve: Serve) -> None:
    text = json.dumps(
        {
            "role_1": {"reason": "妙\U0001f600!", "vote": "1"},
            "role_2": {"reason": "x", "vote": "1"},
        },
        ensure_ascii=False,
    )
    before, after = text.split("妙\U0001f600!")
    pieces = [
        (before, STRUCTURE),
        ("\ufffd", -0.2),
        ("\ufffd", -0.4),
        (r"\xf0\x9f", -0.6),
        (r"\x98\x80", -0.8),
    ]
    head, tail = after.split('"1"', 1)
    pieces += [("!", -1.0), (head, STRUCTURE), ('"1"', -1.2), (tail, STRUCTURE)]
    async with serve(lambda body: Answer(text, tokens=pieces)) as (stub, _):
        response = await stub.ComparePair(request())
    assert response.votes[0].confidence == pytest.approx(math.exp(-(0.2 + 0.4 + 0.6 + 0.8 + 1.0 + 1.2) / 6))
    assert response.votes[1].confidence == pytest.approx(math.exp(STRUCTURE))


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "logprobs is not supported with this model"),
        (403, "You are not allowed to request logprobs from this model"),
    ],
)
async def test_an_endpoint_that_refuses_log_probabilities_still_votes(
    serve: Serve, status: int, message: str
) -> None:
    def respond(body: Body) -> Answer:
        if body.get("logprobs"):
            return Answer(message, status=status)
        return Answer(json.dumps(entries(shown(body), lambda *_: "1")))

    async with serve(respond) as (stub, server):
        response = await stub.ComparePair(request())
        again = await stub.ComparePair(request(first="Gamma"))
    assert [vote.preference for vote in response.votes] == [pb.PREFERENCE_FIRST] * 2
    assert not any(vote.HasField("confidence") for vote in response.votes)
    assert not response.HasField("first_drpe_score")
    assert not response.HasField("second_drpe_score")
    for one in (response, again):
        assert any("logprobs" in " ".join(call.omitted_parameters) for call in one.provenance.completions)
    # The refusal is remembered: only the first request, and the probe that confirms it, asked for
    # log-probabilities.
    assert [bool(body.get("logprobs")) for body in server.bodies] == [True, True, False, False]
