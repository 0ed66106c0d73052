"""The setups: the services, called by a run or call by call, and clients without services."""

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
from typing import Any

import aiohttp
import openai

from bench.load.kinds import KINDS, Kind, scripts
from bench.load.measured import Load, Measured, measured
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1 import run_pb2, scripts_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.client import DramaturgClient
from dramaturg.service.installed import find_app, settings_type
from tests.support.ports import free_port
from tests.support.processes import ForkedService, ServiceProcess

_numbers = count()
"""Makes every sample another one."""
_PLACE = "@number@"


@dataclass(frozen=True)
class Platform:
    """The configuration of the services.

    Attributes:
        load: How many model calls are made, and how many at once.
        base_url: The address of the model.
        ledger: The ledger's URL. None: a new SQLite file.
        collector: The address that spans are sent to; metrics are counted then. Empty: neither is.
        events: Whether the collector also gets an event of every verdict.
        apart: Whether each service is a process, or all are one.
        kind: What is evaluated.
        forked: Whether services are forks of a process that has imported them. They start at once, and their
            memory is that of this process.
    """

    load: Load
    base_url: str
    ledger: str | None
    collector: str
    events: bool = False
    apart: bool = True
    kind: Kind = KINDS["scripts_8"]
    forked: bool = False


async def calls(platform: Platform) -> Measured:
    """Every judgement of a script is a call of EvaluateScripts, as many at once as the load says."""
    load = platform.load
    async with _serving(platform) as processes, DramaturgClient(processes[-1].target) as client:

        async def judge() -> None:
            request = scripts(next(_numbers))
            request.mechanism = scripts_pb2.MECHANISM_SINGLE_JUDGE
            async for event in client.evaluate_scripts(request):
                last = event
            outcomes = {verdict.outcome for verdict in last.result.candidates[0].verdicts}
            assert outcomes == {verdict_pb2.OUTCOME_PASS}, last

        await _shared(judge, 2 * load.concurrency, load.concurrency)
        work = _shared(judge, load.judgements, load.concurrency)
        return await measured(load, work, [process.pid for process in processes])


async def run(platform: Platform) -> Measured:
    """All model calls are those of one run, from its creation to its end.

    The run has twice as many calls under way as the provider takes at once, so that the next ones are ready
    when an answer comes. Its dataset is made before the measurement.
    """
    load = platform.load
    async with _serving(platform) as processes, DramaturgClient(processes[-1].target) as client:
        await _run(client, platform, _spec(platform, 2 * load.concurrency))
        work = _run(client, platform, _spec(platform, load.judgements))
        return await measured(load, work, [process.pid for process in processes])


async def bare_client(load: Load, base_url: str) -> Measured:
    """The ``openai`` package posts the same bodies, and nothing is done with the answers."""
    body = await _body(base_url)
    async with openai.AsyncOpenAI(
        base_url=base_url, api_key="none", max_retries=0, http_client=openai.DefaultAioHttpClient()
    ) as client:

        async def call() -> None:
            *others, last = body["messages"]
            messages = [*others, last | {"content": last["content"].replace(_PLACE, str(next(_numbers)))}]
            await client.chat.completions.create(**body | {"messages": messages})

        await _shared(call, 2 * load.concurrency, load.concurrency)
        return await measured(load, _shared(call, load.judgements, load.concurrency), [os.getpid()])


async def floor(load: Load, base_url: str) -> Measured:
    """``aiohttp`` posts the same bodies, made before, and reads the answers."""
    before, _, after = json.dumps(await _body(base_url)).encode().partition(_PLACE.encode())
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers) as session:

        async def call() -> None:
            data = b"%b%d%b" % (before, next(_numbers), after)
            async with session.post(f"{base_url}/chat/completions", data=data) as response:
                await response.read()

        await _shared(call, 2 * load.concurrency, load.concurrency)
        return await measured(load, _shared(call, load.judgements, load.concurrency), [os.getpid()])


async def _body(base_url: str) -> dict[str, Any]:
    """The body of a request that the server had, with ``_PLACE`` at the end of its last message."""
    async with aiohttp.ClientSession() as session, session.get(base_url) as response:
        body: dict[str, Any] = json.loads(await response.read())
    body["messages"][-1]["content"] += _PLACE
    return body


async def _shared(call: Callable[[], Awaitable[None]], times: int, concurrency: int) -> None:
    """Makes a number of calls at the given concurrency."""
    turns = iter(range(times))

    async def work() -> None:
        for _ in turns:
            await call()

    await asyncio.gather(*(work() for _ in range(concurrency)))


def _spec(platform: Platform, calls: int) -> RunSpec:
    """A run of a number of model calls."""
    kind = platform.kind
    return kind.run(islice(_numbers, calls // kind.calls), _under_way(platform.load))


def _under_way(load: Load) -> int:
    """How many model calls a run has under way at once."""
    return 2 * load.concurrency


async def _run(client: DramaturgClient, platform: Platform, spec: RunSpec) -> None:
    created = await client.runs.create(spec)
    async for event in client.runs.watch(created.id):
        last = event
    assert last.run.state == run_pb2.RUN_STATE_SUCCEEDED, last.run
    samples = last.run.dataset.row_count
    assert samples, last.run
    assert last.run.progress.usage.provider_call_count == samples * platform.kind.calls, last.run
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
            "DRAMATURG_RUNS_ENABLED": "true",
            "DRAMATURG_RUNS_URL": f"sqlite:///{folder / 'runs.sqlite3'}",
            # Only the provider limits concurrency.
            "DRAMATURG_GATEWAY_CALLS_PER_JUDGE": str(_under_way(load)),
            "DRAMATURG_TRACES_ENDPOINT": platform.collector,
            "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": platform.collector if platform.events else "",
        }
        provider = f"""
            [generation.providers.local]
            kind = "chat"
            base_url = "{platform.base_url}"
            default_model = "m"
            concurrency = {{ start = {load.concurrency}, maximum = {load.concurrency} }}
            """
        file.write_text(provider)
        async with AsyncExitStack() as stack:

            async def start(*arguments: str, **settings: str) -> ServiceProcess:
                metrics = {"DRAMATURG_METRICS_PORT": str(free_port())} if platform.collector else {}
                variables = environment | metrics | settings
                process = (
                    ForkedService(folder, variables, *arguments)
                    if platform.forked
                    else ServiceProcess("dramaturg", folder, variables, *arguments)
                )
                await process.start()
                stack.push_async_callback(process.stop)
                return process

            if not platform.apart:
                yield [await start("up")]
                return
            services = {"generation": await start("serve", "generation")}
            entries = []
            for role, service in platform.kind.services.items():
                if service not in services:
                    variable = f"DRAMATURG_{service.upper().replace('-', '_')}_GENERATION_TARGET"
                    # A service of figures calls no model, and stops where it is given the address of one.
                    asks = "generation_target" in settings_type(find_app(service)).model_fields
                    settings = {variable: services["generation"].target} if asks else {}
                    services[service] = await start("serve", service, **settings)
                target = services[service].target
                entries.append(f'[[gateway.judges]]\nrole = "{role}"\nname = "llm"\ntarget = "{target}"\n')
            file.write_text(provider + "".join(entries))
            yield [*services.values(), await start("serve", "gateway")]
