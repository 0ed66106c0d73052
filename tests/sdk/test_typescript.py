"""The package for TypeScript: a judge passes the conformance kit, and a client prints tables of papers.

``make test-typescript`` builds the package and runs this module.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import pytest

from dramaturg import conformance
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.api.judging.v1.judge_service_pb2_grpc import JudgeServiceStub
from dramaturg.client import DramaturgClient
from dramaturg.judge import roles
from dramaturg.judge.client import judge_one, judge_request
from dramaturg.service.channel import open_channel
from dramaturg.testing import serve
from gateway.app import App as Gateway
from gateway.runs.settings import RunsSettings
from gateway.settings import GatewaySettings, JudgeEntry
from services.alignment.app import App as AlignmentApp
from tests.support.evaluation_samples import samples
from tests.support.judges import TASK, candidate
from tests.support.ports import free_port
from tests.support.stored_runs import address_of, store_run

pytestmark = pytest.mark.typescript

PACKAGE = Path(__file__).resolve().parents[2] / "sdk" / "typescript"
LEVELS = ("all", "binary", "easy", "medium", "hard", "either")


async def run_node(*arguments: str) -> tuple[int, str, str]:
    """The exit status, the output and the errors of a program of the package."""
    program = await asyncio.create_subprocess_exec(
        "node", *arguments, cwd=PACKAGE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await program.communicate()
    assert program.returncode is not None
    return program.returncode, output.decode(), errors.decode()


@asynccontextmanager
async def terse_critic() -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """The address of the judge of the example, and its process."""
    port = free_port()
    program = await asyncio.create_subprocess_exec(
        "node",
        "dist/examples/terse_critic.js",
        cwd=PACKAGE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PORT": str(port)},
    )
    assert program.stdout is not None
    try:
        assert await asyncio.wait_for(program.stdout.readline(), 30) == f"serving on {port}\n".encode()
        yield f"localhost:{port}", program
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()


async def test_the_judge_passes_the_kit() -> None:
    async with terse_critic() as (target, _):
        outcomes = await conformance.run(roles.CRITIC, target, timeout=20)
    assert outcomes
    assert [(one.check.name, one.failure) for one in outcomes if not one.passed] == []


async def test_the_judge_finds_repeated_steps() -> None:
    async with terse_critic() as (target, _), open_channel(target) as channel:
        one = candidate("Heat it.", "Wait.", "heat  it.")
        found = await judge_one(channel, judge_request(TASK, [one]), timeout=10)
        prose = judge_request(TASK, [Candidate(id="a", text="Heat it and drink it.")])
        unread = await judge_one(channel, prose, timeout=10)
    outcomes = [verdict.outcome for verdict in found.verdicts]
    assert outcomes == [verdict_pb2.OUTCOME_ABSTAIN, verdict_pb2.OUTCOME_ABSTAIN, verdict_pb2.OUTCOME_FAIL]
    assert list(found.verdicts[2].findings[0].step_indices) == [0, 2]
    assert {one.abstain_reason for one in unread.verdicts} == {verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED}


async def test_every_limit_of_the_contract_is_checked() -> None:
    wanted = judge_request(TASK, [candidate("Heat it.")])
    wanted.candidates[0].text = "x" * 200_001
    wanted.task.goal = " \n"
    for name in ("a", "a"):
        wanted.criteria.add(id=name)
    async with terse_critic() as (target, _), open_channel(target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            async for _response in JudgeServiceStub(channel).Judge(wanted, timeout=10):
                pass
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "task.goal is missing or empty" in (refused.value.details() or "")
    assert "candidates[0].text has 200001 characters; at most 200000 are allowed" in (
        refused.value.details() or ""
    )


async def test_a_stopped_judge_ends_by_itself() -> None:
    async with terse_critic() as (_, program):
        program.terminate()
        assert await asyncio.wait_for(program.wait(), 10) == 0


def test_the_judge_is_short() -> None:
    text = (PACKAGE / "examples" / "terse_critic.ts").read_text(encoding="utf-8")
    assert len([line for line in text.splitlines() if line.strip()]) <= 30


@asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[str]:
    """The address of a gateway with the runs of a folder."""
    async with AsyncExitStack() as stack:
        statistics = await stack.enter_async_context(
            serve(*await stack.enter_async_context(AlignmentApp().open()))
        )
        judges = (JudgeEntry(role="alignment", name="built-in", target=statistics.target),)
        app = Gateway(GatewaySettings(judges=judges), RunsSettings(enabled=True, url=address_of(folder)))
        contracts = await stack.enter_async_context(app.open())
        yield (await stack.enter_async_context(serve(*contracts, drain_grace_seconds=0.2))).target


def table(output: str) -> Sequence[Mapping[str, str]]:
    """The rows of a printed table, by column."""
    head, *rows = (line.split("\t") for line in output.splitlines())
    return [dict(zip(head, row, strict=True)) for row in rows]


async def printed(folder: Path, kind: str) -> tuple[Sequence[Mapping[str, str]], Summary]:
    """The table that the client prints for a run of samples, and the summary of the run."""
    store_run(address_of(folder), "run", samples(kind))
    async with gateway(folder) as target:
        status, output, errors = await run_node("dist/examples/paper_tables.js", f"http://{target}", "run")
        async with DramaturgClient(target) as client:
            summary = (await client.runs.summary("run")).summary
    assert status == 0, errors
    return table(output), summary


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


async def test_table_3_of_choice_75_is_that_of_the_summary(tmp_path: Path) -> None:
    rows, summary = await printed(tmp_path, "decision")
    figures = {
        (one.format, one.prompt, one.model, one.level): one.accuracy.accuracy.value
        for one in summary.decisions.figures
        if one.order == "as-given"
    }
    assert len(rows) == len({key[:3] for key in figures}) > 1
    for row in rows:
        for level in LEVELS:
            value = figures.get((row["format"], row["prompt"], row["model"], level))
            assert row[level] == shown(value)


async def test_table_4_of_simulbench_is_that_of_the_summary(tmp_path: Path) -> None:
    rows, summary = await printed(tmp_path, "dialogue")
    figures = {(one.model, one.group): one.mean for one in summary.dialogues.ratings}
    assert [row["model"] for row in rows] == list(dict.fromkeys(model for model, _ in figures))
    for row in rows:
        for group, cell in row.items():
            if group != "model":
                mean = figures.get((row["model"], group))
                known = mean is not None and mean.HasField("value")
                assert cell == shown(mean.value if mean is not None and known else None)
    assert any(re.fullmatch(r"\d+\.\d\d", row["all"]) for row in rows)


async def test_an_unknown_run_is_an_error(tmp_path: Path) -> None:
    async with gateway(tmp_path) as target:
        status, _, errors = await run_node("dist/examples/paper_tables.js", f"http://{target}", "none")
    assert status != 0
    assert "not_found" in errors
