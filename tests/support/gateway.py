"""A gateway over real gRPC whose judges are functions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from dramaturg.api.agents.v1 import synthesize_service_pb2, synthesize_service_pb2_grpc
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.provenance_pb2 import CompletionReference, Provenance, Usage
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    EvaluateScriptsRequest,
    EvaluateScriptsResponse,
    ScriptsResult,
)
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeCandidate, JudgeRequest
from dramaturg.client import DramaturgClient
from dramaturg.judge.contracts import SYNTHESIZE_SERVICE
from dramaturg.judge.roles import ROLES, JudgeRole
from dramaturg.judge.verdicts import passed
from dramaturg.service.contract import Contract
from dramaturg.testing import FakeJudge, RegisteredJudge, serve_gateway

Answer = Callable[[Any], Awaitable[Any]]
"""Answers a request for a synthesis with a response, or one candidate (``Asked``) with an assessment."""

GOLD_STEPS = ("Boil water.", "Pour it over the tea.")
CALL = Usage(prompt_token_count=10, completion_token_count=2, provider_call_count=1)


async def until_read(read: Callable[[], Awaitable[Any]], expected: Any, seconds: float = 15) -> None:
    """Reads until the expected value comes.

    Raises:
        AssertionError: It does not come in time.
    """
    begun = time.monotonic()
    while (value := await read()) != expected:
        assert time.monotonic() - begun < seconds, f"{value}, not {expected}"
        await asyncio.sleep(0.02)


def criteria_of(role: str) -> Sequence[str]:
    judge = ROLES.get(role)
    return judge.criteria if isinstance(judge, JudgeRole) else ()


def all_pass(role: str) -> Assessment:
    """PASS for every criterion of a role, bought with one call."""
    return Assessment(
        verdicts=[passed(criterion, rationale="Fine.") for criterion in criteria_of(role)],
        provenance=Provenance(name=f"fake-{role}", usage=CALL, completions=[CompletionReference(usage=CALL)]),
    )


@dataclass(frozen=True)
class Asked:
    """One candidate of a request to judge."""

    request: JudgeRequest
    candidate: JudgeCandidate

    @property
    def pool(self) -> Sequence[JudgeCandidate]:
        """The other candidates."""
        others = [one for one in self.request.candidates if one.id != self.candidate.id]
        return [*others, *self.request.pool]

    @property
    def task(self) -> Task:
        return self.request.task

    @property
    def options(self) -> JudgeOptions:
        return self.request.options

    @property
    def reference(self) -> Script:
        return self.request.reference


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
        criteria = criteria_of(role) if self.criteria is None else self.criteria
        if role == "synthesize":
            add = synthesize_service_pb2_grpc.add_SynthesizeServiceServicer_to_server
            return Contract.make(
                SYNTHESIZE_SERVICE,
                add,
                _SynthesizeServicer(self),
                name=f"fake-{role}",
                version="1.0.0",
                description="A synthesizer for tests.",
                criteria=criteria,
                capabilities=self.capabilities,
            )
        return FakeJudge(
            lambda request, candidate: self.respond(Asked(request, candidate)),
            name=f"fake-{role}",
            criteria=criteria,
            capabilities=self.capabilities,
        ).contract()

    async def respond(self, request: Any) -> Any:
        return await (self.answer or self._approve)(request)

    async def _approve(self, request: Any) -> Any:
        if self.role == "synthesize":
            return synthesize_service_pb2.SynthesizeResponse(
                script=steps(*GOLD_STEPS),
                pool_ids=sorted(candidate.id for candidate in request.candidates),
                provenance=Provenance(
                    name="fake-synthesize", usage=CALL, completions=[CompletionReference(usage=CALL)]
                ),
            )
        return all_pass(self.role)


class _SynthesizeServicer(synthesize_service_pb2_grpc.SynthesizeServiceServicer):
    def __init__(self, fake: Fake) -> None:
        self._fake = fake

    async def Synthesize(self, request: Any, context: Any) -> Any:
        return await self._fake.respond(request)


def agents(*replaced: Fake) -> list[Fake]:
    """One judge for each agent's role, those given in place of the ones that pass everything."""
    taken = {fake.role for fake in replaced}
    roles = ("synthesize", "critic", "execute", "commonsense")
    return [*replaced, *(Fake(role) for role in roles if role not in taken)]


@asynccontextmanager
async def gateway_target(*fakes: Fake, **settings: Any) -> AsyncIterator[str]:
    """Starts every judge and a gateway that knows them; it keeps runs if the environment says so."""
    judges = (
        RegisteredJudge(fake.role, fake.target or fake.contract(), fake.name, fake.default) for fake in fakes
    )
    async with serve_gateway(*judges, **{"runs": {}, **settings}) as server:
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
