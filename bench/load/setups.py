"""Who makes the judgements: the services, asked call by call or by a run, and the bare ``openai`` client."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

import openai

from bench.load import judgements
from bench.load.measured import Load, Measured, measured
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.client import DramaturgClient
from services.generation.codec import decode_request
from services.generation.providers.wire import StructuredOutput, request_body
from tests.support.ports import free_port
from tests.support.processes import ServiceProcess

RUN_CANDIDATES = 8
"""The candidates of each task of a run."""

_numbers = count()
"""Makes every evaluation another one."""


@dataclass(frozen=True)
class Platform:
    """The services, and what they work against.

    Attributes:
        load: How much is judged, and how much at once.
        base_url: Where the model is.
        ledger: The ledger's URL. None: a new SQLite file.
        collector: Where spans go; metrics are counted then. Empty: neither is.
        apart: Whether each service is a process, or all are one.
    """

    load: Load
    base_url: str
    ledger: str | None
    collector: str
    apart: bool = True


async def calls(platform: Platform) -> Measured:
    """Every judgement is a call of its own of EvaluateScripts, so many at once as the load says."""
    load = platform.load
    async with _serving(platform) as processes, DramaturgClient(processes[-1].target) as client:

        async def judge() -> None:
            async for event in client.evaluate_scripts(judgements.evaluation(next(_numbers))):
                last = event
            judgements.require_all_passed(last.result.candidates[0].verdicts)

        await _shared(judge, 2 * load.concurrency, load.concurrency)
        work = _shared(judge, load.judgements, load.concurrency)
        return await measured(load, work, [process.pid for process in processes])


async def run(platform: Platform) -> Measured:
    """All judgements are one run, of tasks with eight candidates each.

    The run has twice as many judgements under way as the provider is called at once, so that the next ones
    are ready when an answer comes. What is to be judged is there before: to make it up is no part of the job.
    """
    load = platform.load
    async with _serving(platform) as processes, DramaturgClient(processes[-1].target) as client:
        await _run(client, _spec(load, 2 * load.concurrency))
        work = _run(client, _spec(load, load.judgements))
        return await measured(load, work, [process.pid for process in processes])


async def bare_client(load: Load, base_url: str) -> Measured:
    """The ``openai`` package posts the same bodies, and nothing is done with the answers."""
    call, _ = decode_request(await judgements.question())
    body = json.loads(request_body(call, StructuredOutput.JSON_SCHEMA, "max_tokens")) | {"model": "m"}
    async with openai.AsyncOpenAI(
        base_url=base_url, api_key="none", max_retries=0, http_client=openai.DefaultAioHttpClient()
    ) as client:

        async def judge() -> None:
            *others, last = body["messages"]
            messages = [*others, last | {"content": f"{last['content']}\n{next(_numbers)}"}]
            await client.chat.completions.create(**body | {"messages": messages})

        await _shared(judge, 2 * load.concurrency, load.concurrency)
        return await measured(load, _shared(judge, load.judgements, load.concurrency), [os.getpid()])


async def _shared(judge: Callable[[], Awaitable[None]], times: int, concurrency: int) -> None:
    """Has so many judgements made, so many at once."""
    turns = iter(range(times))

    async def work() -> None:
        for _ in turns:
            await judge()

    await asyncio.gather(*(work() for _ in range(concurrency)))


def _spec(load: Load, times: int) -> RunSpec:
    """A run of so many judgements."""
    at_once = max(1, _under_way(load) // RUN_CANDIDATES)
    return judgements.run(islice(_numbers, times // RUN_CANDIDATES), RUN_CANDIDATES, at_once)


def _under_way(load: Load) -> int:
    """How many judgements a run has under way at once."""
    return 2 * load.concurrency


async def _run(client: DramaturgClient, spec: RunSpec) -> None:
    created = await client.runs.create(spec)
    async for event in client.runs.watch(created.id):
        last = event
    assert last.run.state == run_pb2.RUN_STATE_SUCCEEDED, last.run
    samples = last.run.dataset.row_count
    assert samples, last.run
    assert last.run.progress.judgement_count == samples * RUN_CANDIDATES * judgements.VERDICTS, last.run
    assert not last.run.progress.abstention_count, last.run


@asynccontextmanager
async def _serving(platform: Platform) -> AsyncIterator[list[ServiceProcess]]:
    """Starts the services; the last one has the gateway."""
    load = platform.load
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "dramaturg.toml"
        environment = {
            "DRAMATURG_CONFIG": str(file),
            "DRAMATURG_GENERATION_LEDGER_URL": platform.ledger or f"sqlite:///{folder / 'ledger.sqlite3'}",
            "DRAMATURG_GENERATION_LEDGER_SPOOL_DIR": str(folder / "spool"),
            "DRAMATURG_RUNS_ENABLED": "true",
            "DRAMATURG_RUNS_URL": f"sqlite:///{folder / 'runs.sqlite3'}",
            # The provider bounds the calls, and nobody before it.
            "DRAMATURG_GATEWAY_CALLS_PER_JUDGE": str(_under_way(load)),
            "DRAMATURG_TRACES_ENDPOINT": platform.collector,
        }
        provider = f"""
            [generation.providers.local]
            kind = "openai"
            base_url = "{platform.base_url}"
            default_model = "m"
            concurrency = {{ start = {load.concurrency}, maximum = {load.concurrency} }}
            """
        file.write_text(provider)
        async with AsyncExitStack() as stack:

            async def start(module: str, *arguments: str, **settings: str) -> ServiceProcess:
                metrics = {"DRAMATURG_METRICS_PORT": str(free_port())} if platform.collector else {}
                process = ServiceProcess(module, folder, environment | metrics | settings, *arguments)
                await process.start()
                stack.push_async_callback(process.stop)
                return process

            if not platform.apart:
                yield [await start("dramaturg", "up")]
                return
            generation = await start("services.generation")
            judge = await start(
                "services.judging", DRAMATURG_SCRIPT_JUDGE_GENERATION_TARGET=generation.target
            )
            entry = f'[[gateway.judges]]\nrole = "script-judge"\nname = "llm"\ntarget = "{judge.target}"\n'
            file.write_text(provider + entry)
            yield [generation, judge, await start("gateway")]
