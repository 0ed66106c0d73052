"""``make conformance``: the kit against our own services and against a judge with a fault, as one table.

Judges that call models have a generation service with scripted answers; the offline agents have the real
embedding service. The exit code is 1 if a service of ours breaks a requirement, or the faulty judge does not
fail exactly what it breaks.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from dramaturg import conformance
from dramaturg.api.generation.v1.generation_service_pb2 import Completion, GenerateRequest
from dramaturg.cli.terminal import Terminal
from dramaturg.judge.roles import RATING_JUDGE, RUBRIC_JUDGE, SCRIPT_JUDGE
from dramaturg.service.contract import Contract
from dramaturg.testing import FakeGeneration, completion, serve
from dramaturg.testing.generation import plain_answer
from services.agents.commonsense.app import App as CommonsenseApp
from services.agents.commonsense.settings import CommonsenseSettings
from services.agents.critic.app import App as CriticApp
from services.agents.critic.settings import CriticSettings
from services.agents.execute.app import App as ExecuteApp
from services.agents.execute.settings import ExecuteSettings
from services.agents.synthesize.app import App as SynthesizeApp
from services.agents.synthesize.settings import SynthesizeSettings
from services.embedding.settings import EmbeddingSettings
from services.judging.app import App as ScriptJudgeApp
from services.judging.rubrics.app import App as RubricJudgeApp
from services.judging.rubrics.settings import RubricJudgeSettings
from services.judging.settings import ScriptJudgeSettings
from tests.dramaturg.conformance.test_contracts import FORM, rate, service, too_high
from tests.support.embedding import WarmApp
from tests.support.evaluations import dialogue_judges
from tests.support.judges import all_pass


@dataclass(frozen=True)
class Row:
    """The checks of one service."""

    service: str
    role: str
    checks: int
    failing: AbstractSet[str]
    expected: AbstractSet[str]
    seconds: float

    @property
    def as_expected(self) -> bool:
        """Whether exactly the expected checks fail."""
        return self.failing == self.expected


def _answer(request: GenerateRequest) -> Completion:
    members = json.loads(request.json_format.schema)["properties"] if request.HasField("json_format") else {}
    if "votes" in members:
        return completion({"votes": [{"role": n, "reason": "So.", "vote": "1"} for n in (1, 2)]})
    return plain_answer(request) if {"vote", "rating", "turn"} & members.keys() else all_pass(request)


def _apps(generation: str, embedding: str) -> Iterator[tuple[str, Any]]:
    """Our services, each with the role that it is checked for."""
    for options in ({"generation_target": generation}, {"backend": "offline", "embedding_target": embedding}):
        agents: dict[str, Any] = options
        yield "synthesize", SynthesizeApp(SynthesizeSettings(**agents))
        yield "critic", CriticApp(CriticSettings(**agents))
        yield "execute", ExecuteApp(ExecuteSettings(**agents))
        yield "commonsense", CommonsenseApp(CommonsenseSettings(**agents))
    yield SCRIPT_JUDGE.name, ScriptJudgeApp(ScriptJudgeSettings(generation_target=generation))
    yield RUBRIC_JUDGE.name, RubricJudgeApp(RubricJudgeSettings(generation_target=generation))
    yield RUBRIC_JUDGE.name, RubricJudgeApp(RubricJudgeSettings(backend="offline"))
    for app in dialogue_judges(generation):
        yield app.name, app


@asynccontextmanager
async def _faulty() -> AsyncIterator[list[Contract]]:
    yield [service(RATING_JUDGE.name, rate(too_high), "faulty")]


async def _check(
    role: str, opened: AbstractAsyncContextManager[Any], expected: AbstractSet[str] = frozenset()
) -> Row:
    async with opened as contracts, serve(*contracts) as server:
        started = time.perf_counter()
        outcomes = await conformance.run(conformance.checked_role(role), server.target, timeout=30)
        seconds = time.perf_counter() - started
    failing = {one.check.name for one in outcomes if not one.passed}
    return Row(contracts[0].identity.name, role, len(outcomes), failing, expected, seconds)


async def rows() -> list[Row]:
    """Checks every service, one after the other."""
    async with (
        serve(FakeGeneration(_answer).contract()) as generation,
        WarmApp(EmbeddingSettings()).open() as contracts,
        serve(*contracts) as embedding,
    ):
        checked = [await _check(role, app.open()) for role, app in _apps(generation.target, embedding.target)]
    return [*checked, await _check(RATING_JUDGE.name, _faulty(), FORM)]


def main() -> int:
    checked = asyncio.run(rows())
    table = Table("service", "role", "checks", "broken", "seconds", "as expected")
    for row in checked:
        figures = (str(row.checks), str(len(row.failing)), f"{row.seconds:.1f}")
        table.add_row(row.service, row.role, *figures, "yes" if row.as_expected else "NO")
    terminal = Terminal()
    terminal.print(table)
    for row in checked:
        if row.failing or not row.as_expected:
            terminal.print(
                f"{row.service} breaks {', '.join(sorted(row.failing)) or 'nothing'}", soft_wrap=True
            )
    return 0 if all(row.as_expected for row in checked) else 1


if __name__ == "__main__":
    sys.exit(main())
