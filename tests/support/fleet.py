"""Gateways, generation and judges, each a process of its own that can be killed, and their runs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.protobuf.message import Message

from dramaturg.api.common.v1.provenance_pb2 import PromptReference
from dramaturg.api.evaluation.v1 import run_pb2, scripts_pb2
from dramaturg.api.evaluation.v1.run_pb2 import Run, RunSample, RunSpec, ScriptsRunOptions
from dramaturg.api.evaluation.v1.run_service_pb2 import CreateRunRequest, GetRunRequest, ListSamplesRequest
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceStub
from gateway.runs.records import ACTIVE
from tests.support.accounts import Accounts, marked, settle
from tests.support.engines import lines, script_rows
from tests.support.openai_server import OpenAIServer
from tests.support.ports import free_port
from tests.support.processes import ForkedService, ServiceProcess, plain

if TYPE_CHECKING:  # the generated types of asynchronous stubs exist for type checkers alone
    from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceAsyncStub

LEASE_SECONDS = 6.0
"""The lease of these gateways: short, so that a test need not wait long for a dead one's."""
SECONDS = 110.0
"""The most that a test waits for a run."""

# One for all fleets, since a completion's fingerprint holds the address of its provider.
_MODEL_PORT = free_port()
# Read before the tests' environment is cleared.
_REPORT = os.environ.get("DRAMATURG_FAULT_REPORT")

_PASSING = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


@dataclass
class Fleet:
    """The processes. A task of its runs costs two model calls: a gold answer and a judgement."""

    model: OpenAIServer
    generation: ServiceProcess
    synthesize: ServiceProcess
    judge: ServiceProcess
    gateways: Sequence[ServiceProcess]
    deaths: list[tuple[float, float]] = field(default_factory=list)
    """When processes were killed: just before and just after, in seconds since 1970."""

    async def create(self, count: int, **fields: Any) -> str:
        """Creates a run of so many tasks; returns its id."""
        spec = scripts_spec(**fields)
        spec.dataset.content = lines(script_rows(count))
        return await self.create_run(spec)

    async def create_run(self, spec: RunSpec) -> str:
        """Creates a run; returns its id."""
        request = CreateRunRequest(spec=spec, request_id=str(uuid.uuid4()))
        response = await self.call(lambda stub: stub.CreateRun(request))
        return str(response.run.id)

    async def get(self, run_id: str) -> Run:
        """The run, as any gateway that answers tells it."""
        response = await self.call(lambda stub: stub.GetRun(GetRunRequest(run_id=run_id)))
        return cast("Run", response.run)

    async def until(self, run_id: str, holds: Callable[[Run], bool]) -> Run:
        """Waits until something holds of a run."""
        async with asyncio.timeout(SECONDS):
            while True:
                run = await self.get(run_id)
                if holds(run):
                    return run
                await asyncio.sleep(0.1)

    async def ended(self, run_id: str) -> Run:
        """Waits for a run to end."""
        return await self.until(run_id, lambda run: run.state not in ACTIVE)

    async def done(self, run_id: str, count: int) -> Run:
        """Waits until so many samples of a run are done, or it has ended."""
        return await self.until(
            run_id, lambda run: run.progress.succeeded_count >= count or run.state not in ACTIVE
        )

    async def samples(self, run_id: str) -> list[RunSample]:
        """All samples of a run."""
        found: list[RunSample] = []
        request = ListSamplesRequest(run_id=run_id, page_size=200)
        while True:
            page = await self.call(lambda stub: stub.ListSamples(request))
            found += page.samples
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def call(self, ask: Callable[[RunServiceAsyncStub], Any]) -> Any:
        """Asks the gateways in turn until one answers: whichever does answers for all."""
        async with asyncio.timeout(SECONDS):
            while True:
                for gateway in self.gateways:
                    async with plain(gateway.target) as channel:
                        try:
                            return await ask(RunServiceStub(channel))
                        except grpc.aio.AioRpcError as error:
                            if error.code() not in _PASSING:
                                raise
                await asyncio.sleep(0.1)

    async def kill(self, process: ServiceProcess) -> int:
        """Kills a process; returns how many model calls were under way, or on their way, when it died."""
        before, under_way, begun = time.time(), self.model.in_flight, self.model.calls.total()
        await process.kill()
        self.deaths.append((before, time.time()))
        return under_way + self.model.calls.total() - begun

    def bought_twice(self) -> dict[str, int]:
        """What the model answered more than once, by fingerprint, and how often beyond once."""
        return {mark: count - 1 for mark, count in self.model.answered.items() if count > 1}

    async def accounts(self, samples: Sequence[RunSample]) -> Accounts:
        """What was paid for twice, and what the ledger says of it, once all samples are done."""
        return await settle(self.model.answered, self.generation.target, samples, self.deaths)


def scripts_spec(**fields: Any) -> RunSpec:
    """A run of scripts before the single judge, which compares with a gold answer."""
    options = ScriptsRunOptions(
        mechanism=scripts_pb2.MECHANISM_SINGLE_JUDGE,
        gold_answer_source=scripts_pb2.GOLD_ANSWER_SOURCE_POOLED,
    )
    return RunSpec(**{"scripts": options, **fields})


@asynccontextmanager
async def fleet(
    folder: Path,
    store: str,
    *,
    gateways: int = 1,
    latency: float = 0.1,
    lease: float = LEASE_SECONDS,
    slots: int = 256,
    configure: Callable[[str], str] = str,
) -> AsyncIterator[Fleet]:
    """Starts everything; ends it all, whatever is still there.

    Args:
        folder: Where ledgers, logs and configurations go.
        store: The address of the store of runs.
        gateways: How many gateways share it.
        latency: How long the model takes for an answer, in seconds.
        lease: The lease of the gateways, in seconds.
        slots: How many samples each gateway evaluates at once.
        configure: Changes the configuration.
    """
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(
            OpenAIServer(marked, latency=latency, record=False, port=_MODEL_PORT)
        )
        environment: dict[str, str] = {"DRAMATURG_CONFIG": str(folder / "dramaturg.toml")}

        def process(name: str, **variables: str) -> ServiceProcess:
            made = ForkedService(folder, {**environment, **variables}, "serve", name)
            stack.push_async_callback(made.kill)
            return made

        generation = process("generation")
        synthesize = process("synthesize")
        script_judge = process("script-judge")
        served = [process("gateway", DRAMATURG_RUNS_ENABLED="true") for number in range(gateways)]
        made = Fleet(model, generation, synthesize, script_judge, served)
        (folder / "dramaturg.toml").write_text(configure(_configuration(made, folder, store, lease, slots)))
        await asyncio.gather(*(one.start() for one in (generation, synthesize, script_judge, *served)))
        yield made


def _configuration(made: Fleet, folder: Path, store: str, lease: float, slots: int) -> str:
    return f"""
    [server]
    drain_grace_seconds = 1
    [generation]
    ledger = "{folder / "ledger.sqlite3"}"
    [generation.providers.local]
    kind = "chat"
    base_url = "{made.model.base_url}"
    default_model = "test-model"
    [synthesize]
    generation_target = "{made.generation.target}"
    [script-judge]
    generation_target = "{made.generation.target}"
    [gateway]
    judges = [
        {{ role = "synthesize", name = "llm", target = "{made.synthesize.target}" }},
        {{ role = "script-judge", name = "llm", target = "{made.judge.target}" }},
        {{ role = "author", name = "llm", target = "{made.generation.target}" }},
    ]
    [runs]
    url = "{store}"
    lease_seconds = {lease}
    lease_renewal_seconds = 1
    drain_timeout_seconds = 1
    max_concurrent_samples = {slots}
    dataset_folders = ["{folder}"]
    """


def comparable(samples: Sequence[RunSample]) -> list[bytes]:
    """Samples as bytes, without what differs from one run to another that found the same: times, how often
    something was tried, and what was paid now and what was paid before."""
    bare = []
    for sample in samples:
        copy = RunSample()
        copy.CopyFrom(sample)
        copy.ClearField("end_time")
        copy.ClearField("attempt_count")
        _strip(copy)
        bare.append(copy.SerializeToString(deterministic=True))
    return bare


def _strip(message: Message) -> None:
    """Takes out latencies, usages, cached flags and the texts of prompts at any depth."""
    if isinstance(message, PromptReference):
        message.ClearField("text")
    for descriptor, value in message.ListFields():
        if descriptor.name in {"latency", "usage", "cached"}:
            message.ClearField(descriptor.name)
        elif descriptor.message_type is not None and not descriptor.message_type.GetOptions().map_entry:
            for part in value if descriptor.is_repeated else [value]:
                _strip(part)


def seeds(default: str) -> list[int]:
    """The seeds of a test, as DRAMATURG_FAULT_SEEDS names them ("0-19" or "3,5"), else the given ones."""
    found: list[int] = []
    for part in os.environ.get("DRAMATURG_FAULT_SEEDS", default).split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def report(**figures: Any) -> None:
    """Prints what a test measured, and keeps it where DRAMATURG_FAULT_REPORT names a file."""
    line = json.dumps(figures)
    sys.stdout.write(f"{line}\n")
    if _REPORT:
        with Path(_REPORT).open("a", encoding="utf-8") as out:
            out.write(f"{line}\n")


SUCCEEDED = run_pb2.RUN_STATE_SUCCEEDED
