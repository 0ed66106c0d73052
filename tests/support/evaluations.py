"""A gateway over real gRPC whose author and judges of replies are functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any

from dramaturg.api.common.v1.decision_pb2 import Decision
from dramaturg.api.common.v1.provenance_pb2 import CompletionReference, Provenance, Usage
from dramaturg.api.embedding.v1 import embedding_service_pb2, embedding_service_pb2_grpc
from dramaturg.api.generation.v1 import (
    authoring_service_pb2,
    authoring_service_pb2_grpc,
    edge_service_pb2,
    edge_service_pb2_grpc,
)
from dramaturg.api.judging.v1 import (
    challenge_judge_service_pb2,
    challenge_judge_service_pb2_grpc,
    pair_judge_service_pb2,
    pair_judge_service_pb2_grpc,
    rating_judge_service_pb2,
    rating_judge_service_pb2_grpc,
    text_scorer_service_pb2,
    text_scorer_service_pb2_grpc,
)
from dramaturg.service.installed import App
from dramaturg.service.server import Contract
from dramaturg.testing import serve
from gateway.app import App as Gateway
from gateway.settings import GatewaySettings, JudgeEntry
from services.alignment.app import App as AlignmentApp
from services.judging.challenges.judge import SPEC as CHALLENGE_JUDGE_SPEC
from services.judging.pairs.judge import SPEC as PAIR_JUDGE_SPEC
from services.judging.ratings.judge import SPEC as RATING_JUDGE_SPEC
from tests.support.openai_server import OpenAIServer
from tests.support.readers import generation_target

Method = Callable[[Any], Awaitable[Any]]
Roles = Mapping[str, Mapping[str, Method]]
"""What each role answers, by method."""

_USAGE = Usage(prompt_token_count=10, completion_token_count=2, provider_call_count=1)
CALL = Provenance(name="fake", usage=_USAGE, completions=[CompletionReference(usage=_USAGE)])
"""How an answer was made that cost one call."""

_SERVICES: dict[str, tuple[Any, Callable[..., None]]] = {
    "author": (
        authoring_service_pb2.DESCRIPTOR.services_by_name["AuthoringService"],
        authoring_service_pb2_grpc.add_AuthoringServiceServicer_to_server,
    ),
    "embedding": (
        embedding_service_pb2.DESCRIPTOR.services_by_name["EmbeddingService"],
        embedding_service_pb2_grpc.add_EmbeddingServiceServicer_to_server,
    ),
    "edges": (
        edge_service_pb2.DESCRIPTOR.services_by_name["EdgeService"],
        edge_service_pb2_grpc.add_EdgeServiceServicer_to_server,
    ),
    "rating-judge": (
        rating_judge_service_pb2.DESCRIPTOR.services_by_name["RatingJudgeService"],
        rating_judge_service_pb2_grpc.add_RatingJudgeServiceServicer_to_server,
    ),
    "pair-judge": (
        pair_judge_service_pb2.DESCRIPTOR.services_by_name["PairJudgeService"],
        pair_judge_service_pb2_grpc.add_PairJudgeServiceServicer_to_server,
    ),
    "challenge-judge": (
        challenge_judge_service_pb2.DESCRIPTOR.services_by_name["ChallengeJudgeService"],
        challenge_judge_service_pb2_grpc.add_ChallengeJudgeServiceServicer_to_server,
    ),
    "text-scorer": (
        text_scorer_service_pb2.DESCRIPTOR.services_by_name["TextScorerService"],
        text_scorer_service_pb2_grpc.add_TextScorerServiceServicer_to_server,
    ),
}


def contract(role: str, methods: Mapping[str, Method]) -> Contract:
    """A service whose methods are functions; the others are not implemented."""
    descriptor, add = _SERVICES[role]

    async def absent(request: Any, context: Any) -> Any:
        raise NotImplementedError

    def handler(method: Method) -> Callable[[Any, Any], Awaitable[Any]]:
        async def handle(request: Any, context: Any) -> Any:
            return await method(request)

        return handle

    names = {method.name: absent for method in descriptor.methods}
    servicer = SimpleNamespace(**{**names, **{name: handler(method) for name, method in methods.items()}})
    return Contract.make(descriptor, add, servicer, name=f"fake-{role}", version="1.0.0", description="Fake.")


@asynccontextmanager
async def gateway_target(
    roles: Roles, *, alignment: bool = False, model: OpenAIServer | None = None, **settings: Any
) -> AsyncIterator[str]:
    """Starts a service for each role, "fake" by name, and a gateway that knows them.

    Args:
        roles: What they answer.
        alignment: Whether the real alignment service is there too.
        model: A model's server; the real services are then the author and the judges of dialogues.
        settings: The gateway's other settings.
    """
    async with AsyncExitStack() as stack:
        judges: list[JudgeEntry] = []
        if model is not None:
            await stack.enter_async_context(model)
            target = await stack.enter_async_context(generation_target(model))
            judges.append(JudgeEntry(role="author", name="llm", target=target))
            for app in dialogue_judges(target):
                contracts = await stack.enter_async_context(app.open())
                server = await stack.enter_async_context(serve(*contracts))
                judges.append(JudgeEntry(role=app.name, name="llm", target=server.target))
        for role, methods in roles.items():
            server = await stack.enter_async_context(serve(contract(role, methods), drain_grace_seconds=0.2))
            judges.append(JudgeEntry(role=role, name="fake", target=server.target))
        if alignment:
            contracts = await stack.enter_async_context(AlignmentApp().open())
            server = await stack.enter_async_context(serve(*contracts))
            judges.append(JudgeEntry(role="alignment", name="built-in", target=server.target))
        gateway = Gateway(GatewaySettings(**{"judges": tuple(judges), **settings}))
        contracts = await stack.enter_async_context(gateway.open())
        yield (await stack.enter_async_context(serve(*contracts, drain_grace_seconds=0.2))).target


def dialogue_judges(generation_target: str) -> Sequence[App]:
    """The judges of dialogues that ask a model; each one's name is its role."""
    return (
        CHALLENGE_JUDGE_SPEC(generation_target=generation_target),
        RATING_JUDGE_SPEC(generation_target=generation_target),
        PAIR_JUDGE_SPEC(generation_target=generation_target),
    )


@contextmanager
def gateway_in_a_thread(roles: Roles, **settings: Any) -> Iterator[str]:
    """The same on an event loop of its own, for what blocks the caller's: a command."""
    with in_a_thread(lambda: gateway_target(roles, **settings)) as target:
        yield target


@contextmanager
def in_a_thread(serve_target: Callable[[], AbstractAsyncContextManager[str]]) -> Iterator[str]:
    """Runs a server on an event loop of its own; yields its target."""
    ready: list[str] = []
    started, ended = threading.Event(), threading.Event()

    async def hold() -> None:
        async with serve_target() as target:
            ready.append(target)
            started.set()
            await asyncio.to_thread(ended.wait)

    def work() -> None:
        try:
            asyncio.run(hold())
        finally:
            started.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        started.wait(30)
        assert ready, "the server did not start"
        yield ready[0]
    finally:
        ended.set()
        thread.join(30)


def decision(scenario: str = "has no internet connection", **fields: Any) -> Decision:
    """A decision of the kind of the paper's Table 2."""
    return Decision(
        **{
            "id": "library/0",
            "goal": "find out when the library opens",
            "option_1": "ring the library",
            "option_2": "look it up online",
            "scenario": scenario,
            **fields,
        }
    )
