"""``make conformance``: the kit against our own services and against services with a fault each, as tables.

Judges that call models have a generation service with scripted answers; the offline agents have the real
embedding service. A judge of the examples is started by its
command, and stopped. The exit code is 1 if a service of ours breaks a requirement, or a faulty judge does not
fail exactly what it breaks.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from dramaturg import conformance
from dramaturg.api.generation.v1.generation_service_pb2 import Completion, GenerateRequest
from dramaturg.cli.terminal import Terminal
from dramaturg.judge.roles import CRITIC, EDGES, EMBEDDING, RUBRIC_JUDGE, SCRIPT_JUDGE
from dramaturg.service.contract import Contract
from dramaturg.testing import FakeGeneration, completion, serve
from dramaturg.testing.generation import plain_answer
from services.agents.commonsense.judge import SPEC as COMMONSENSE_SPEC
from services.agents.critic.judge import SPEC as CRITIC_SPEC
from services.agents.execute.judge import SPEC as EXECUTE_SPEC
from services.agents.synthesize.synthesizer import SPEC as SYNTHESIZE_SPEC
from services.embedding.settings import EmbeddingSettings
from services.generation.app import App as GenerationApp
from services.judging.judge import SPEC as SCRIPT_JUDGE_SPEC
from services.judging.rubrics.judge import SPEC as RUBRIC_JUDGE_SPEC
from tests.dramaturg.conformance import service_faults
from tests.dramaturg.conformance.faults import FAULTS
from tests.dramaturg.conformance.test_generation import answer
from tests.support.command_line import ROOT
from tests.support.embedding import WarmApp
from tests.support.evaluations import dialogue_judges
from tests.support.generation import endpoint, generation_settings
from tests.support.judges import all_pass
from tests.support.openai_server import OpenAIServer

TIMEOUT = 60.0
"""The most seconds of one answer."""


@dataclass(frozen=True)
class Row:
    """The checks of one service."""

    service: str
    role: str
    outcomes: Sequence[conformance.Outcome]
    expected: AbstractSet[str]

    @property
    def failing(self) -> AbstractSet[str]:
        """The names of the checks that fail."""
        return {one.check.name for one in self.outcomes if one.broken}

    @property
    def cells(self) -> Sequence[str]:
        """The cells of the table."""
        outcomes = self.outcomes
        return [
            self.service,
            self.role,
            str(sum(one.passed for one in outcomes)),
            str(len(self.failing)),
            str(sum(bool(one.skipped) for one in outcomes)),
            f"{sum(one.seconds for one in outcomes):.1f}",
            "yes" if self.as_expected else "NO",
        ]

    @property
    def as_expected(self) -> bool:
        """Whether exactly the expected checks fail."""
        return self.failing == self.expected


def _answer(request: GenerateRequest) -> Completion:
    members = json.loads(request.json_format.schema)["properties"] if request.HasField("json_format") else {}
    if "role_1" in members:
        return completion({f"role_{n}": {"reason": "So.", "vote": "1"} for n in (1, 2)})
    return plain_answer(request) if {"vote", "rating", "turn"} & members.keys() else all_pass(request)


def _apps(generation: str, embedding: str) -> Iterator[tuple[str, Any]]:
    """Our services, each with the role that it is checked for."""
    for options in ({"generation_target": generation}, {"backend": "offline", "embedding_target": embedding}):
        agents: dict[str, Any] = options
        yield "synthesize", SYNTHESIZE_SPEC(**agents)
        yield "critic", CRITIC_SPEC(**agents)
        yield "execute", EXECUTE_SPEC(**agents)
        yield "commonsense", COMMONSENSE_SPEC(**agents)
    yield SCRIPT_JUDGE.name, SCRIPT_JUDGE_SPEC(generation_target=generation)
    yield RUBRIC_JUDGE.name, RUBRIC_JUDGE_SPEC(generation_target=generation)
    yield RUBRIC_JUDGE.name, RUBRIC_JUDGE_SPEC(backend="offline")
    for app in dialogue_judges(generation):
        yield app.name, app


async def check(role: str, opened: AbstractAsyncContextManager[Any]) -> Row:
    """Checks a service."""
    checked = conformance.checked_role(role)
    async with opened as contracts, serve(*contracts) as server:
        outcomes = await conformance.run(checked, server.target, timeout=TIMEOUT)
    (tested,) = [one for one in contracts if one.full_name == checked.contract]
    return Row(tested.identity.name, role, outcomes, frozenset())


async def _check_command() -> Row:
    """The judge of the examples, which is started, and stopped by the check of the drain."""
    command = [sys.executable, str(ROOT / "examples" / "judges" / "terse_critic.py")]
    role = conformance.checked_role(CRITIC.name)
    outcomes = await conformance.run(role, command=command, timeout=TIMEOUT)
    return Row("terse-critic", role.name, outcomes, frozenset())


async def _check_faulty(role: str, contract: Contract, check: str) -> Row:
    async with serve(contract) as server:
        outcomes = await conformance.run(conformance.checked_role(role), server.target, timeout=TIMEOUT)
    return Row(check, role, outcomes, {check})


@asynccontextmanager
async def judges() -> AsyncIterator[Sequence[tuple[str, Any]]]:
    """Our services with what they ask, each with the role that it is checked for."""
    async with (
        serve(FakeGeneration(_answer).contract()) as generation,
        WarmApp(EmbeddingSettings()).open() as contracts,
        serve(*contracts) as embedding,
    ):
        yield list(_apps(generation.target, embedding.target))


async def rows() -> list[Row]:
    """Checks every service, one after the other."""
    async with OpenAIServer(answer, record=False) as provider, judges() as ours:
        checked = [await check(role, app.open()) for role, app in ours]
        checked.append(await check(EMBEDDING.name, WarmApp(EmbeddingSettings()).open()))
        for role in (conformance.GENERATION, EDGES.name):
            app = GenerationApp(generation_settings(providers={"p0": endpoint(provider)}))
            checked.append(await check(role, app.open()))
    checked.append(await _check_command())
    return checked


async def faulty_rows() -> list[Row]:
    """Checks every judge and service with a fault."""
    found = [await _check_faulty(conformance.JUDGE, fault.make(), fault.check) for fault in FAULTS]
    for fault in service_faults.FAULTS:
        async with service_faults.SOUND[fault.role].open() as contract:
            found.append(await _check_faulty(fault.role, fault.change(contract), fault.check))
    return found


def main() -> int:
    logging.disable()
    ours, theirs = asyncio.run(rows()), asyncio.run(faulty_rows())
    names = ("holds", "broken", "skipped", "seconds", "as expected")
    table, faulty = Table("service", "role", *names), Table("fault", "role", "broken", "as expected")
    for row in ours:
        table.add_row(*row.cells)
    for row in theirs:
        faulty.add_row(row.service, row.role, str(len(row.failing)), "yes" if row.as_expected else "NO")
    terminal = Terminal(width=120)
    terminal.print(table)
    terminal.print(faulty)
    checked = [*ours, *theirs]
    for row in checked:
        if not row.as_expected:
            terminal.print(
                f"{row.service} breaks {', '.join(sorted(row.failing)) or 'nothing'}", soft_wrap=True
            )
            for one in row.outcomes:
                if one.broken:
                    terminal.print(f"  {one.check.name}: {one.failure}", soft_wrap=True)
    return 0 if all(row.as_expected for row in checked) else 1


if __name__ == "__main__":
    sys.exit(main())
