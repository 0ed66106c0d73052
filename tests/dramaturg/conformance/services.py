"""Sound services of each contract, for tests of the kit. Also a program that serves one, and does not drain.

``python -m tests.dramaturg.conformance.services ROLE FAULT --port PORT``
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import grpc

from dramaturg.api.agents.v1 import synthesize_service_pb2, synthesize_service_pb2_grpc
from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Script, Step
from dramaturg.api.embedding.v1 import embedding_service_pb2, embedding_service_pb2_grpc
from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest, EmbedResponse
from dramaturg.api.generation.v1 import edge_service_pb2, edge_service_pb2_grpc
from dramaturg.api.generation.v1.edge_service_pb2 import PredictEdgesRequest, PredictEdgesResponse
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.api.judging.v1 import (
    challenge_judge_service_pb2,
    challenge_judge_service_pb2_grpc,
    pair_judge_service_pb2,
    pair_judge_service_pb2_grpc,
    rating_judge_service_pb2,
    rating_judge_service_pb2_grpc,
)
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import (
    FindChallengingTurnRequest,
    FindChallengingTurnResponse,
)
from dramaturg.api.judging.v1.pair_judge_service_pb2 import (
    PREFERENCE_FIRST,
    Ballot,
    ComparePairRequest,
    ComparePairResponse,
    RoleVote,
)
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyRequest, RateReplyResponse, Rating
from dramaturg.api.judging.v1.text_scorer_service_pb2 import ScoreTextsRequest, ScoreTextsResponse
from dramaturg.judge.text_scorers import scored, text_scorer_contract, unscored
from dramaturg.service import server as serving
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError, invalid

Opened = Callable[[], AbstractAsyncContextManager[Contract]]

SERVICES: dict[str, tuple[Any, Callable[..., None], str]] = {
    "pair-judge": (
        pair_judge_service_pb2.DESCRIPTOR.services_by_name["PairJudgeService"],
        pair_judge_service_pb2_grpc.add_PairJudgeServiceServicer_to_server,
        "ComparePair",
    ),
    "rating-judge": (
        rating_judge_service_pb2.DESCRIPTOR.services_by_name["RatingJudgeService"],
        rating_judge_service_pb2_grpc.add_RatingJudgeServiceServicer_to_server,
        "RateReply",
    ),
    "challenge-judge": (
        challenge_judge_service_pb2.DESCRIPTOR.services_by_name["ChallengeJudgeService"],
        challenge_judge_service_pb2_grpc.add_ChallengeJudgeServiceServicer_to_server,
        "FindChallengingTurn",
    ),
    "edges": (
        edge_service_pb2.DESCRIPTOR.services_by_name["EdgeService"],
        edge_service_pb2_grpc.add_EdgeServiceServicer_to_server,
        "PredictEdges",
    ),
    "synthesize": (
        synthesize_service_pb2.DESCRIPTOR.services_by_name["SynthesizeService"],
        synthesize_service_pb2_grpc.add_SynthesizeServiceServicer_to_server,
        "Synthesize",
    ),
}

Method = Callable[[Any], Awaitable[Any]]


def service(role: str, answer: Method, name: str = "fake") -> Contract:
    """A service that answers as a function does, and signs."""
    descriptor, add, method = SERVICES[role]

    async def handle(request: Any, context: Any) -> Any:
        del context
        response = await answer(request)
        provenance = response.rating.provenance if role == "rating-judge" else response.provenance
        for field, value in (("name", name), ("version", "1.0.0"), ("contract", descriptor.full_name)):
            if not getattr(provenance, field):
                setattr(provenance, field, value)
        return response

    servicer = SimpleNamespace(**{method: handle})
    return Contract.make(descriptor, add, servicer, name=name, version="1.0.0", description="Fake.")


def compare(request: ComparePairRequest) -> ComparePairResponse:
    """Every role prefers the first text."""
    ballots = [Ballot(order=order, preference=PREFERENCE_FIRST) for order in (2, 3)]  # type: ignore[arg-type]
    vote = RoleVote(preference=PREFERENCE_FIRST, ballots=ballots)
    seen = [RoleVote(role=role, preference=PREFERENCE_FIRST, ballots=ballots) for role in request.roles] or [
        vote
    ]
    return ComparePairResponse(votes=seen, preference=PREFERENCE_FIRST, first_vote_share=1.0)


async def compare_pair(request: ComparePairRequest) -> Any:
    return compare(request)


async def rate_seven(_: RateReplyRequest) -> RateReplyResponse:
    return RateReplyResponse(rating=Rating(value=7.0))


async def first_turn(request: FindChallengingTurnRequest) -> FindChallengingTurnResponse:
    if len(request.utterances) % 2:
        raise invalid("utterances", "does not end with a reply")
    return FindChallengingTurnResponse(turn=1)


async def synthesize(_: SynthesizeRequest) -> SynthesizeResponse:
    return SynthesizeResponse(script=Script(steps=[Step(text="Heat the water.")]))


async def no_edges(_: PredictEdgesRequest) -> PredictEdgesResponse:
    return PredictEdgesResponse(method=edge_service_pb2.EDGE_METHOD_END_TO_END, graph=ScriptGraph())


class Shouting:
    """Scores the share of capital letters."""

    name = "shouting"
    version = "1.2.3"
    description = "Shouting."
    criteria = ("shouting",)
    capabilities = ()

    async def score_texts(self, request: ScoreTextsRequest) -> ScoreTextsResponse:
        return ScoreTextsResponse(
            scores=[
                scored(sum(letter.isupper() for letter in text) / len(text))
                if text.strip()
                else unscored(verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE)
                for text in request.texts
            ]
        )


MODEL = "random"


def vector(text: str) -> list[float]:
    draw = random.Random(hashlib.sha256(text[:1000].encode()).digest())
    values = [draw.gauss(0, 1) for _ in range(8)]
    length = math.sqrt(sum(value * value for value in values))
    return [value / length for value in values]


class RandomEmbedding(embedding_service_pb2_grpc.EmbeddingServiceServicer):
    """Vectors that depend on the first 1,000 characters."""

    def __init__(self, change: Callable[[EmbedRequest, EmbedResponse], None]) -> None:
        self._change = change

    async def Embed(self, request: EmbedRequest, context: Any) -> EmbedResponse:
        del context
        if request.model not in {"", MODEL}:
            raise ServiceError(
                grpc.StatusCode.INVALID_ARGUMENT, error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN, "no such model"
            )
        response = EmbedResponse(model=MODEL, dimension=8)
        for text in request.texts:
            response.embeddings.add(values=vector(text), truncated=len(text) > 1000)
        self._change(request, response)
        return response

    async def EmbedTokens(self, request: Any, context: Any) -> Any:
        raise ServiceError(
            grpc.StatusCode.UNIMPLEMENTED, error_reason_pb2.ERROR_REASON_NOT_IMPLEMENTED, "no tokens"
        )


def embedding(change: Callable[[EmbedRequest, EmbedResponse], None], *capabilities: str) -> Contract:
    return Contract.make(
        embedding_service_pb2.DESCRIPTOR.services_by_name["EmbeddingService"],
        embedding_service_pb2_grpc.add_EmbeddingServiceServicer_to_server,
        RandomEmbedding(change),
        name="random-embedding",
        version="1.0.0",
        description="Random.",
        capabilities=capabilities,
    )


def _opened(make: Callable[[], Contract]) -> Callable[[], AbstractAsyncContextManager[Contract]]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Contract]:
        yield make()

    return opened


@asynccontextmanager
async def _generation() -> AsyncIterator[Contract]:
    """Ours, with a scripted provider."""
    # Not above: the other services start without what it imports.
    from services.generation.app import App
    from tests.dramaturg.conformance.test_generation import answer
    from tests.support.generation import endpoint, generation_settings
    from tests.support.openai_server import OpenAIServer

    async with (
        OpenAIServer(answer, record=False) as provider,
        App(generation_settings(providers={"p0": endpoint(provider)})).open() as contracts,
    ):
        (main,) = [one for one in contracts if one.full_name.endswith(".GenerationService")]
        yield main


OPEN: Mapping[str, Opened] = {
    **{
        role: _opened(partial(service, role, answer))  # type: ignore[arg-type]  # mypy joins their types
        for role, answer in {
            "pair-judge": compare_pair,
            "rating-judge": rate_seven,
            "challenge-judge": first_turn,
            "synthesize": synthesize,
            "edges": no_edges,
        }.items()
    },
    "text-scorer": _opened(lambda: text_scorer_contract(Shouting())),
    "embedding": _opened(lambda: embedding(lambda *_: None)),
    "generation": _generation,
}
"""A sound service for each role whose judges are not judges of texts."""


class _Slow:
    """A servicer whose calls that are under way at a stop take a while."""

    def __init__(self, servicer: Any, seconds: float) -> None:
        self._servicer = servicer
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._servicer, name)

        async def handle(request: Any, context: Any) -> Any:
            await asyncio.sleep(self._seconds if b"Drink the tea." in request.SerializeToString() else 0)
            return await method(request, context)

        return method if name == "GenerateBatch" else handle


class _App:
    name = "service"

    def __init__(self, role: str, seconds: float) -> None:
        self._open = OPEN[role]
        self._seconds = seconds

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        async with self._open() as contract:
            yield [replace(contract, servicer=_Slow(contract.servicer, self._seconds))]


class _Dying(asyncio.SelectorEventLoop):
    """Ends the process at SIGTERM, with its calls."""

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:  # type: ignore[override]
        del callback, args
        signal.signal(sig, lambda *_: os._exit(1))


if __name__ == "__main__":
    dies = sys.argv[2] == "dies"
    if dies:
        serving._loop_factory = lambda: _Dying
    # Calls that die with the process last until then on any machine.
    serving.run(_App(sys.argv[1], 20 if dies else 0.3), sys.argv[3:])
