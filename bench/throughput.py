"""What a judgement costs beside the call of a model: time, processor time and memory, in one run.

A judgement is one call of EvaluateScripts with one candidate and the mechanism "single judge": gateway ->
script-judge -> generation -> a server of this machine that speaks the OpenAI protocol and answers after
``--latency`` seconds. It ends in one assessment with seven verdicts, none of them an abstention. No prompt
comes twice; every completion is kept in the ledger, every call is logged.

Three things are measured one after the other, ``--repeat`` times, and the median is shown: the services as
separate processes, all of them in one (``dramaturg up``), and for comparison the bare ``openai`` client, with
so many calls at once, which sends the same bodies and does nothing with the answers. Ideal is what the
latency and the concurrency allow: judgements / concurrency x latency. Processor time is what /proc/PID/stat
says of the services' processes; that of the server of models is not counted, that of this program, which
calls the gateway, is told apart. Every setup has answered some judgements before it is measured.

    python bench/throughput.py [--judgements 1000] [--concurrency 64] [--latency 0.1] [--repeat 3] [--json]
        [--ledger postgresql://...]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import openai
import uvloop
from google.protobuf.json_format import ParseDict
from rich.console import Console
from rich.table import Table

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1 import evaluation_service_pb2
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import EvaluateScriptsRequest
from dramaturg.api.generation.v1.generation_service_pb2 import GenerateRequest, GenerateResponse
from dramaturg.api.judging.v1.script_judge_service_pb2 import JudgeScriptRequest
from dramaturg.client import DramaturgClient
from dramaturg.judge.excerpts import ExcerptLimits
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from services.generation.codec import decode_request
from services.generation.providers.wire import StructuredOutput, request_body
from services.judging.app import PROMPTS
from services.judging.script.llm import LlmScriptJudge
from tests.support.judges import all_pass
from tests.support.processes import ServiceProcess

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "examples" / "scripts" / "tasks.jsonl"
TICKS = os.sysconf("SC_CLK_TCK")
VERDICTS = 7
Judge = Callable[[int], Awaitable[None]]
"""Makes the judgement of a number."""


@dataclass(frozen=True)
class Measured:
    """One setup, measured once."""

    wall_over_ideal: float
    cpu_ms_per_judgement: float
    """Of all the setup's own processes."""
    caller_cpu_ms_per_judgement: float
    """Of this program, which calls the setup. 0 for the bare client, which is this program."""
    peak_memory_mib: float
    """Of the setup's own processes together, each at its own peak."""


@dataclass(frozen=True)
class Load:
    """How much is asked, and of what."""

    judgements: int
    concurrency: int
    latency: float
    numbers: Iterator[int]
    """Makes every request another one."""

    @property
    def ideal(self) -> float:
        """The least seconds that the load can take."""
        return self.judgements / self.concurrency * self.latency

    async def run(self, judge: Judge, judgements: int) -> None:
        """Has so many judgements made, as many at once as the concurrency says."""
        turns = iter(range(judgements))

        async def work() -> None:
            for _ in turns:
                await judge(next(self.numbers))

        await asyncio.gather(*(work() for _ in range(self.concurrency)))


@cache
def sample() -> dict[str, Any]:
    """The first task of the samples."""
    with SAMPLES.open(encoding="utf-8") as file:
        row: dict[str, Any] = json.loads(file.readline())
    return row


def request(number: int) -> EvaluateScriptsRequest:
    """The first candidate of the samples, with a step that no other request has."""
    row = sample()
    made = ParseDict({"task": row["task"], "candidates": row["candidates"][:1]}, EvaluateScriptsRequest())
    made.candidates[0].script.steps.add(text=f"Write down the number {number}.")
    made.mechanism = evaluation_service_pb2.MECHANISM_SINGLE_JUDGE
    return made


async def question(number: int) -> GenerateRequest:
    """What the judge asks of a model for a request."""
    asked: list[GenerateRequest] = []

    class Generation:
        async def Generate(self, request: GenerateRequest) -> GenerateResponse:
            asked.append(request)
            return GenerateResponse()

    asker: Any = Asker(Generation())  # type: ignore[arg-type]  # all of a stub that it uses
    judge = LlmScriptJudge(asker, PromptLibrary(PROMPTS), ExcerptLimits())
    wanted = request(number)
    await judge.judge(JudgeScriptRequest(task=wanted.task, candidate=wanted.candidates[0]), judge.criteria)
    return asked[0]


@contextmanager
def model_server(latency: float, text: str) -> Iterator[str]:
    """Runs the server of models in a process of its own; yields its address."""
    command = [sys.executable, "-m", "tests.support.openai_server", "--latency", str(latency), "--text", text]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@asynccontextmanager
async def services(apart: bool, base_url: str, ledger: str | None) -> AsyncIterator[list[ServiceProcess]]:
    """Starts the services, each as a process or all as one; the last one has the gateway."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "dramaturg.toml"
        environment = {
            "DRAMATURG_CONFIG": str(file),
            "DRAMATURG_GENERATION_LEDGER_URL": ledger or f"sqlite:///{folder / 'ledger.sqlite3'}",
            "DRAMATURG_GENERATION_LEDGER_SPOOL_DIR": str(folder / "spool"),
        }
        provider = (
            f'[generation.providers.local]\nkind = "openai"\nbase_url = "{base_url}"\ndefault_model = "m"\n'
        )
        file.write_text(provider)
        async with AsyncExitStack() as stack:

            async def start(module: str, *arguments: str, **settings: str) -> ServiceProcess:
                process = ServiceProcess(module, folder, environment | settings, *arguments)
                await process.start()
                stack.push_async_callback(process.stop)
                return process

            if not apart:
                yield [await start("dramaturg.cli.main", "up")]
                return
            generation = await start("services.generation")
            judge = await start(
                "services.judging", DRAMATURG_SCRIPT_JUDGE_GENERATION_TARGET=generation.target
            )
            entry = f'[[gateway.judges]]\nrole = "script-judge"\nname = "llm"\ntarget = "{judge.target}"\n'
            file.write_text(provider + entry)
            yield [generation, judge, await start("gateway")]


@asynccontextmanager
async def gateway(target: str) -> AsyncIterator[Judge]:
    """Has a gateway make judgements, and looks at what it answers."""
    async with DramaturgClient(target) as client:

        async def judge(number: int) -> None:
            async for event in client.evaluate_scripts(request(number)):
                last = event
            outcomes = [verdict.outcome for verdict in last.result.candidates[0].verdicts]
            assert outcomes == [verdict_pb2.OUTCOME_PASS] * VERDICTS, last

        yield judge


async def measure_services(load: Load, base_url: str, *, apart: bool, ledger: str | None) -> Measured:
    async with services(apart, base_url, ledger) as processes, gateway(processes[-1].target) as judge:
        await load.run(judge, 2 * load.concurrency)
        before = sum(processor_seconds(process.pid) for process in processes)
        seconds, own = await timed(load, judge)
        after = sum(processor_seconds(process.pid) for process in processes)
        memory = sum(peak_memory(process.pid) for process in processes)
    return measured(load, seconds, after - before, own, memory)


async def measure_bare_client(load: Load, base_url: str) -> Measured:
    call, _ = decode_request(await question(0))
    body = json.loads(request_body(call, StructuredOutput.JSON_SCHEMA, "max_tokens")) | {"model": "m"}
    async with openai.AsyncOpenAI(
        base_url=base_url, api_key="none", max_retries=0, http_client=openai.DefaultAioHttpClient()
    ) as client:

        async def judge(number: int) -> None:
            *others, last = body["messages"]
            messages = [*others, last | {"content": f"{last['content']}\n{number}"}]
            await client.chat.completions.create(**body | {"messages": messages})

        await load.run(judge, 2 * load.concurrency)
        seconds, own = await timed(load, judge)
    return measured(load, seconds, own, 0.0, peak_memory(os.getpid()))


async def timed(load: Load, judge: Judge) -> tuple[float, float]:
    """Runs the load; returns the seconds on the clock and those of this process."""
    begun, own = time.perf_counter(), time.process_time()
    await load.run(judge, load.judgements)
    return time.perf_counter() - begun, time.process_time() - own


def measured(load: Load, seconds: float, cpu: float, caller_cpu: float, memory: float) -> Measured:
    return Measured(
        seconds / load.ideal, cpu / load.judgements * 1000, caller_cpu / load.judgements * 1000, memory
    )


def processor_seconds(pid: int) -> float:
    """User and system time of a process and all its threads (proc(5), fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_memory(pid: int) -> float:
    """The most memory that a process had at once, in MiB (proc(5), VmHWM)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


async def measure(load: Load, repeat: int, ledger: str | None) -> dict[str, Measured]:
    text = all_pass(await question(0)).text
    runs: dict[str, list[Measured]] = {"separate processes": [], "one process": [], "bare openai client": []}
    with model_server(load.latency, text) as base_url:
        for _ in range(repeat):
            runs["separate processes"].append(
                await measure_services(load, base_url, apart=True, ledger=ledger)
            )
            runs["one process"].append(await measure_services(load, base_url, apart=False, ledger=ledger))
            runs["bare openai client"].append(await measure_bare_client(load, base_url))
    return {
        name: Measured(
            *(median(column) for column in zip(*(asdict(run).values() for run in some), strict=True))
        )
        for name, some in runs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--judgements", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.1, help="seconds")
    parser.add_argument("--repeat", type=int, default=1, help="the median of so many runs is shown")
    parser.add_argument("--ledger", help="the ledger's URL; by default a new SQLite file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    load = Load(options.judgements, options.concurrency, options.latency, count())
    result = uvloop.run(measure(load, options.repeat, options.ledger))
    if options.json:
        print(json.dumps(as_json(load, result), indent=2))
    else:
        console = Console()
        # In a file or a pipe nothing is gained by folding the columns.
        (console if console.is_terminal else Console(width=120)).print(as_table(load, result))


def as_json(load: Load, result: dict[str, Measured]) -> dict[str, Any]:
    def rounded(one: Measured) -> dict[str, float]:
        return {name: round(value, 3) for name, value in asdict(one).items()}

    return {
        **rounded(result["separate processes"]),
        "one_process": rounded(result["one process"]),
        "bare_client": rounded(result["bare openai client"]),
        "judgements": load.judgements,
        "concurrency": load.concurrency,
        "latency_seconds": load.latency,
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }


def as_table(load: Load, result: dict[str, Measured]) -> Table:
    bare = result["bare openai client"]
    table = Table(
        title=f"{load.judgements} judgements, {load.concurrency} at once, {load.latency * 1000:g} ms a call",
        caption=f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}",
    )
    for column in (
        "",
        "wall / ideal",
        "/ bare",
        "CPU ms / judgement",
        "/ bare",
        "caller's CPU ms",
        "peak MiB",
    ):
        table.add_column(column, justify="right" if column else "left")
    for name, one in result.items():
        table.add_row(
            name,
            f"{one.wall_over_ideal:.2f}",
            f"{one.wall_over_ideal / bare.wall_over_ideal:.2f}",
            f"{one.cpu_ms_per_judgement:.2f}",
            f"{one.cpu_ms_per_judgement / bare.cpu_ms_per_judgement:.1f}",
            f"{one.caller_cpu_ms_per_judgement:.2f}" if one.caller_cpu_ms_per_judgement else "-",
            f"{one.peak_memory_mib:.0f}",
        )
    return table


if __name__ == "__main__":
    main()
