"""Comparisons of texts through a real gateway: with the real services, or with judges made of functions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from dramaturg.api.evaluation.v1.pairs_pb2 import ComparedText, EvaluatePairsRequest, EvaluatePairsResponse
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pairs_pb
from dramaturg.api.judging.v1 import pair_judge_service_pb2_grpc as pairs_grpc
from dramaturg.api.roles.v1 import role_service_pb2 as roles_pb
from dramaturg.api.roles.v1 import role_service_pb2_grpc as roles_grpc
from dramaturg.client import DramaturgClient
from dramaturg.service.contract import Contract
from dramaturg.service.installed import App
from dramaturg.testing import serve
from gateway.app import App as Gateway
from gateway.settings import GatewaySettings, JudgeEntry
from services.alignment.app import AlignmentSettings
from services.alignment.app import App as AlignmentApp
from services.embedding.settings import EmbeddingSettings
from services.judging.pairs.judge import SPEC as PAIR_JUDGE_SPEC
from services.roles.app import App as RolesApp
from services.roles.settings import RoleSettings
from tests.support.embedding import WarmApp
from tests.support.openai_server import Body, OpenAIServer, Responder
from tests.support.readers import generation_target, prompt_of

GOOD, BAD = "The bridge was closed on Monday because it is unsafe.", "A bridge exists."
SOURCE = "The council closed the old bridge on Monday. Engineers had found it unsafe."

READERS = {
    "coarse": [
        {"type": "Driver", "description": "Uses the bridge every day on the way to work."},
        {"type": "Motorist", "description": "Uses the bridge every day on the way to work."},
        {"type": "Shopkeeper", "description": "Sells bread and wonders whether customers still come."},
    ],
    "fine": [
        {"type": "Structural engineer", "description": "Inspects steel for fatigue."},
        {"type": "Newcomer", "description": "Has never heard of the town or of its council."},
    ],
}
"""Five readers, the first two of whom are alike."""

Compare = Callable[[pairs_pb.ComparePairRequest, Any], Awaitable[pairs_pb.ComparePairResponse]]


def request(**fields: Any) -> EvaluatePairsRequest:
    """A pair of which the first text is better."""
    return EvaluatePairsRequest(
        **{
            "id": "bridge",
            "source": SOURCE,
            "first": ComparedText(text=GOOD, model="model-a"),
            "second": ComparedText(text=BAD, model="model-b"),
            **fields,
        }
    )


def model(vote: Responder) -> Responder:
    """A model that names ``READERS`` and votes as told."""

    def respond(body: Body) -> Any:
        return READERS if "[BEGIN text 1 " not in prompt_of(body) else vote(body)

    return respond


@asynccontextmanager
async def serve_platform(responder: Responder) -> AsyncIterator[tuple[str, OpenAIServer]]:
    """The gateway with the real services; yields its target and the model's server."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(OpenAIServer(responder))
        generation = await stack.enter_async_context(generation_target(server))
        embedding = await _start(stack, WarmApp(EmbeddingSettings()))
        roles = RoleSettings(generation_target=generation, embedding_target=embedding)
        finder = await _start(stack, RolesApp(roles))
        judge = await _start(stack, PAIR_JUDGE_SPEC(generation_target=generation))
        judges = [("roles", "llm", finder), ("pair-judge", "llm", judge)]
        yield await _start(stack, await _gateway(stack, judges)), server


@asynccontextmanager
async def serve_fakes(
    compare: Compare, finder: roles_grpc.RoleServiceServicer | None = None, **settings: Any
) -> AsyncIterator[str]:
    """The gateway with a judge of pairs made of a function, maybe a finder of roles; yields its target."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serve(pair_judge(compare)))
        judges = [("pair-judge", "fake", server.target)]
        if finder is not None:
            server = await stack.enter_async_context(serve(role_finder(finder)))
            judges.append(("roles", "fake", server.target))
        yield await _start(stack, await _gateway(stack, judges, **settings))


async def events(
    target: str, asked: EvaluatePairsRequest, timeout: float = 20
) -> list[EvaluatePairsResponse]:
    """All events of a comparison."""
    async with DramaturgClient(target) as client:
        return [event async for event in client.evaluate_pairs(asked, timeout=timeout)]


def everyone(preference: pairs_pb.Preference.ValueType) -> Compare:
    """A judge in all of whose roles the same text is better."""

    async def compare(asked: pairs_pb.ComparePairRequest, context: Any) -> pairs_pb.ComparePairResponse:
        voters: Sequence[Any] = asked.roles or [None]
        votes = [pairs_pb.RoleVote(role=role, preference=preference) for role in voters]
        share = {pairs_pb.PREFERENCE_FIRST: 1.0, pairs_pb.PREFERENCE_SECOND: 0.0}.get(preference, 0.5)
        return pairs_pb.ComparePairResponse(votes=votes, preference=preference, first_vote_share=share)

    return compare


class FakeFinder(roles_grpc.RoleServiceServicer):
    """Finds what it is given to find, and keeps the first role of all."""

    def __init__(
        self,
        generated: roles_pb.GenerateRolesResponse | Exception,
        clustered: roles_pb.ClusterRolesResponse | Exception | None = None,
    ) -> None:
        self._generated = generated
        self._clustered = clustered
        self.requests: list[Any] = []

    async def GenerateRoles(self, request: Any, context: Any) -> roles_pb.GenerateRolesResponse:
        self.requests.append(request)
        if isinstance(self._generated, Exception):
            raise self._generated
        return self._generated

    async def ClusterRoles(
        self, request: roles_pb.ClusterRolesRequest, context: Any
    ) -> roles_pb.ClusterRolesResponse:
        if isinstance(self._clustered, Exception):
            raise self._clustered
        return self._clustered or roles_pb.ClusterRolesResponse(roles=request.roles)


async def _gateway(stack: AsyncExitStack, judges: Sequence[tuple[str, str, str]], **settings: Any) -> Gateway:
    alignment = await _start(stack, AlignmentApp(AlignmentSettings()))
    services = [*judges, ("alignment", "built-in", alignment)]
    entries = tuple(JudgeEntry(role=role, name=name, target=target) for role, name, target in services)
    return Gateway(GatewaySettings(judges=entries, **settings))


async def _start(stack: AsyncExitStack, app: App) -> str:
    contracts = await stack.enter_async_context(app.open())
    return (await stack.enter_async_context(serve(*contracts))).target


def pair_judge(compare: Compare) -> Contract:
    class Judge(pairs_grpc.PairJudgeServiceServicer):
        async def ComparePair(
            self, request: pairs_pb.ComparePairRequest, context: Any
        ) -> pairs_pb.ComparePairResponse:
            return await compare(request, context)

    return Contract.make(
        pairs_pb.DESCRIPTOR.services_by_name["PairJudgeService"],
        pairs_grpc.add_PairJudgeServiceServicer_to_server,
        Judge(),
        name="fake-pair-judge",
        version="1.0.0",
        description="Compares as told.",
    )


def role_finder(finder: roles_grpc.RoleServiceServicer) -> Contract:
    return Contract.make(
        roles_pb.DESCRIPTOR.services_by_name["RoleService"],
        roles_grpc.add_RoleServiceServicer_to_server,
        finder,
        name="fake-roles",
        version="1.0.0",
        description="Finds what it is told to.",
    )
