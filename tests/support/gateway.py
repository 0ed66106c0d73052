"""A gateway over real gRPC whose judges are functions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from dramaturg.api.agents.v1 import (
    commonsense_service_pb2,
    commonsense_service_pb2_grpc,
    critic_service_pb2,
    critic_service_pb2_grpc,
    execute_service_pb2,
    execute_service_pb2_grpc,
    synthesize_service_pb2,
    synthesize_service_pb2_grpc,
)
from dramaturg.api.common.v1.provenance_pb2 import Provenance, Usage
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import (
    EvaluateScriptsRequest,
    EvaluateScriptsResponse,
    ScriptsResult,
)
from dramaturg.api.judging.v1 import script_judge_service_pb2, script_judge_service_pb2_grpc
from dramaturg.client import DramaturgClient
from dramaturg.judge.roles import ROLES, JudgeRole
from dramaturg.judge.verdicts import passed
from dramaturg.service.server import Contract
from gateway.app import App
from gateway.settings import GatewaySettings, JudgeEntry
from tests.support.grpc_servers import serve

Answer = Callable[[Any], Awaitable[Any]]
"""Answers a request with a response message or an assessment."""

GOLD_STEPS = ("Boil water.", "Pour it over the tea.")
CALL = Usage(prompt_token_count=10, completion_token_count=2, provider_call_count=1)

_SERVICES: dict[str, tuple[Any, Callable[..., None], str, Callable[..., Any]]] = {
    "synthesize": (
        synthesize_service_pb2.DESCRIPTOR.services_by_name["SynthesizeService"],
        synthesize_service_pb2_grpc.add_SynthesizeServiceServicer_to_server,
        "Synthesize",
        synthesize_service_pb2.SynthesizeResponse,
    ),
    "critic": (
        critic_service_pb2.DESCRIPTOR.services_by_name["CriticService"],
        critic_service_pb2_grpc.add_CriticServiceServicer_to_server,
        "Critique",
        critic_service_pb2.CritiqueResponse,
    ),
    "execute": (
        execute_service_pb2.DESCRIPTOR.services_by_name["ExecuteService"],
        execute_service_pb2_grpc.add_ExecuteServiceServicer_to_server,
        "Execute",
        execute_service_pb2.ExecuteResponse,
    ),
    "commonsense": (
        commonsense_service_pb2.DESCRIPTOR.services_by_name["CommonsenseService"],
        commonsense_service_pb2_grpc.add_CommonsenseServiceServicer_to_server,
        "CheckCommonsense",
        commonsense_service_pb2.CheckCommonsenseResponse,
    ),
    "script-judge": (
        script_judge_service_pb2.DESCRIPTOR.services_by_name["ScriptJudgeService"],
        script_judge_service_pb2_grpc.add_ScriptJudgeServiceServicer_to_server,
        "JudgeScript",
        script_judge_service_pb2.JudgeScriptResponse,
    ),
}


def criteria_of(role: str) -> Sequence[str]:
    judge = ROLES[role]
    return judge.criteria if isinstance(judge, JudgeRole) else ()


def all_pass(role: str) -> Assessment:
    """PASS for every criterion of a role, bought with one call."""
    return Assessment(
        verdicts=[passed(criterion, rationale="Fine.") for criterion in criteria_of(role)],
        provenance=Provenance(name=f"fake-{role}", usage=CALL),
    )


@dataclass
class Fake:
    """A judge made of a function; without one it passes everything, or writes GOLD_STEPS."""

    role: str
    answer: Answer | None = None
    name: str = "fake"
    default: bool = False
    criteria: Sequence[str] | None = None
    """What it declares; None: what its contract promises."""
    capabilities: Sequence[str] = ()
    serves: str = ""
    """The role whose contract it really serves; empty: its own."""
    target: str = ""
    """Where it is; empty: on a server of its own."""

    def contract(self) -> Contract:
        role = self.serves or self.role
        descriptor, add, method, response = _SERVICES[role]

        async def handle(request: Any, context: Any) -> Any:
            answer = await (self.answer or self._approve)(request)
            return response(assessment=answer) if isinstance(answer, Assessment) else answer

        return Contract.make(
            descriptor,
            add,
            SimpleNamespace(**{method: handle}),
            name=f"fake-{role}",
            version="1.0.0",
            description="A judge for tests.",
            criteria=criteria_of(role) if self.criteria is None else self.criteria,
            capabilities=self.capabilities,
        )

    async def _approve(self, request: Any) -> Any:
        if self.role == "synthesize":
            return synthesize_service_pb2.SynthesizeResponse(
                script=steps(*GOLD_STEPS),
                pool_ids=sorted(candidate.id for candidate in request.candidates),
                provenance=Provenance(name="fake-synthesize", usage=CALL),
            )
        return all_pass(self.role)


def agents(*replaced: Fake) -> list[Fake]:
    """One judge for each agent's role, those given in place of the ones that pass everything."""
    taken = {fake.role for fake in replaced}
    roles = ("synthesize", "critic", "execute", "commonsense")
    return [*replaced, *(Fake(role) for role in roles if role not in taken)]


@asynccontextmanager
async def gateway_target(*fakes: Fake, **settings: Any) -> AsyncIterator[str]:
    """Starts every judge and a gateway that knows them."""
    async with AsyncExitStack() as stack:
        entries = []
        for fake in fakes:
            target = fake.target
            if not target:
                target = (
                    await stack.enter_async_context(serve(fake.contract(), drain_grace_seconds=0.2))
                ).target
            entries.append(JudgeEntry(role=fake.role, name=fake.name, target=target, default=fake.default))
        app = App(GatewaySettings(**{"judges": entries, "identity_timeout_seconds": 1, **settings}))
        contracts = await stack.enter_async_context(app.open())
        server = await stack.enter_async_context(serve(*contracts, drain_grace_seconds=0.2))
        yield server.target


@asynccontextmanager
async def gateway_client(*fakes: Fake, **settings: Any) -> AsyncIterator[DramaturgClient]:
    """A client of such a gateway."""
    async with gateway_target(*fakes, **settings) as target, DramaturgClient(target) as client:
        yield client


def steps(*texts: str) -> Script:
    return Script(steps=[Step(text=text) for text in texts])


def scripts_request(count: int = 2, **fields: Any) -> EvaluateScriptsRequest:
    """A request with so many candidates of three steps, written by "model-0" and so on."""
    candidates = [
        Candidate(
            id=f"c{index}",
            model=f"model-{index}",
            script=steps("Heat water.", f"Wait {index} s.", "Pour."),
        )
        for index in range(count)
    ]
    return EvaluateScriptsRequest(
        **{"task": Task(id="t1", goal="Make tea"), "candidates": candidates, **fields}
    )


async def evaluate(
    client: DramaturgClient, request: EvaluateScriptsRequest, timeout: float = 30
) -> list[EvaluateScriptsResponse]:
    """All events of an evaluation."""
    return [event async for event in client.evaluate_scripts(request, timeout=timeout)]


async def evaluate_result(
    client: DramaturgClient, request: EvaluateScriptsRequest, timeout: float = 30
) -> ScriptsResult:
    """The result of an evaluation."""
    return (await evaluate(client, request, timeout))[-1].result
