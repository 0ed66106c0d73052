"""The package for TypeScript: a client prints tables of papers.

``make test-typescript`` builds the package and runs this module.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.client import DramaturgClient
from dramaturg.testing import serve
from gateway.app import App as Gateway
from gateway.runs.settings import RunsSettings
from gateway.settings import GatewaySettings, JudgeEntry
from services.alignment.app import App as AlignmentApp
from tests.support.evaluation_samples import samples
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
