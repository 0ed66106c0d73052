"""Calls at a rate, until standard input ends: ``python -m tests.cluster.load TARGET --rate 50``.

By turns, a call evaluates a script that was never seen before with all four agents, or has one of the three
judges among them judge one, through the gateway. It fails when the call does, or when a verdict is not a
pass: the model passes everything, so whatever abstains tells of a hop that failed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field

import grpc

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_PASS, AbstainReason, Outcome, Verdict
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, Run, RunLimits, RunSpec, ScriptsRunOptions
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.client import DramaturgClient, ServiceError
from dramaturg.judge.client import judge_one, judge_request
from dramaturg.judge.roles import COMMONSENSE, CRITIC, EXECUTE, JudgeRole
from gateway.proxy import ROLE_METADATA
from tests.cluster.cluster import Cluster
from tests.cluster.names import within
from tests.k8s.rendered import ROOT
from tests.support.engines import lines

OPTIONS = JudgeOptions(model="openai/test-model")
CALL_SECONDS = 60.0
FOUND_SECONDS = 30.0
"""By when every new replica must have got calls."""
LEAST_CALLS = 100
"""How many calls a load makes at least, however slow the machine."""
RUN_SECONDS = 120.0
"""By when a run goes on, and a short one has ended."""
_MOST_AT_ONCE = 40
_TURNS: Sequence[JudgeRole | None] = (None, CRITIC, EXECUTE, COMMONSENSE)
"""Which judge is called; None: all of them, by an evaluation."""


@dataclass
class Report:
    """What came of the calls."""

    seconds: float = 0.0
    """How long there were calls."""
    succeeded: int = 0
    """Calls with all verdicts."""
    failed: dict[str, int] = field(default_factory=dict)
    """Calls without, by what went wrong; the ten most frequent."""
    slowest_seconds: float = 0.0
    """The longest call."""

    @property
    def rate(self) -> float:
        """Calls a second that succeeded."""
        return self.succeeded / self.seconds

    def check(self) -> None:
        """Asserts that no call failed, of enough calls."""
        assert not self.failed
        assert self.succeeded >= LEAST_CALLS, f"{self.succeeded} calls say little"


def request(mark: str) -> EvaluateScriptsRequest:
    """A script to be judged, unlike that of any other mark."""
    steps = [Step(text=text) for text in (f"Heat water for {mark}.", "Add a tea bag.", "Wait three minutes.")]
    return EvaluateScriptsRequest(
        task=Task(id=mark, goal=f"Make tea for {mark}", constraints=["without a kettle"]),
        candidates=[Candidate(id="a", script=Script(steps=steps))],
        options=OPTIONS,
    )


async def failure(client: DramaturgClient, mark: str) -> str:
    """Makes one call; returns what went wrong, or nothing."""
    wrong = "no result"
    try:
        async for event in client.evaluate_scripts(request(mark), timeout=CALL_SECONDS):
            if event.WhichOneof("event") == "result":
                (candidate,) = event.result.candidates
                wrong = "; ".join(sorted(_doubts(candidate.verdicts)))
    except ServiceError as error:
        return f"{error.code.name} {error.reason_name}: {error.message}"
    return wrong


async def create_run(client: DramaturgClient, count: int, name: str, limits: RunLimits | None = None) -> Run:
    """A run of so many scripts."""
    rows = [request(f"{name}-{number}") for number in range(count)]
    spec = RunSpec(
        display_name=name,
        dataset=Dataset(content=lines(rows)),
        scripts=ScriptsRunOptions(),
        options=OPTIONS,
        limits=limits,
    )
    return await client.runs.create(spec)


async def judge_failure(client: DramaturgClient, role: JudgeRole, mark: str) -> str:
    """Has one judge called through the gateway; returns what went wrong, or nothing."""
    asked = request(mark)
    one = judge_request(asked.task, asked.candidates, criteria=role.criteria, options=OPTIONS)
    try:
        assessment = await judge_one(
            client.channel, one, timeout=CALL_SECONDS, metadata=[(ROLE_METADATA, role.name)]
        )
    except grpc.aio.AioRpcError as error:
        return f"{role.name} {error.code().name}: {error.details()}"
    except ServiceError as error:
        return f"{role.name} {error.code.name} {error.reason_name}: {error.message}"
    return "; ".join(f"{role.name} {doubt}" for doubt in sorted(_doubts(assessment.verdicts)))


def _doubts(verdicts: Sequence[Verdict]) -> set[str]:
    if not verdicts:
        return {"no verdicts"}
    return {
        f"{Outcome.Name(verdict.outcome)} {AbstainReason.Name(verdict.abstain_reason)}: {verdict.rationale}"
        for verdict in verdicts
        if verdict.outcome != OUTCOME_PASS
    }


async def load(target: str, rate: float, name: str) -> Report:
    """Makes calls until standard input ends."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def end() -> None:
        loop.remove_reader(sys.stdin.fileno())
        ended.set()

    loop.add_reader(sys.stdin.fileno(), end)
    room = asyncio.Semaphore(_MOST_AT_ONCE)
    failed: Counter[str] = Counter()
    report = Report()

    async def call(number: int) -> None:
        begin, role, mark = loop.time(), _TURNS[number % len(_TURNS)], f"{name}-{number}"
        wrong = await (failure(client, mark) if role is None else judge_failure(client, role, mark))
        report.slowest_seconds = max(report.slowest_seconds, loop.time() - begin)
        room.release()
        if wrong:
            failed[wrong] += 1
        else:
            report.succeeded += 1
            if report.succeeded == 1:
                print("begun", flush=True)  # noqa: T201 - for whoever started it

    begin = loop.time()
    async with DramaturgClient(target) as client, asyncio.TaskGroup() as calls:
        due = begin
        for number in itertools.count():
            # A machine that is too slow for the rate gets fewer calls, not a pile of them.
            await room.acquire()
            if ended.is_set():
                break
            calls.create_task(call(number))
            due = max(due + 1 / rate, loop.time() - 1)
            await asyncio.sleep(max(0.0, due - loop.time()))
    report.seconds, report.failed = loop.time() - begin, dict(failed.most_common(10))
    return report


@asynccontextmanager
async def under_load(cluster: Cluster, name: str, rate: float = 50.0) -> AsyncIterator[Report]:
    """Calls the gateway by its name while the block lasts, from a pod of its own.

    Yields the report, which is filled in when the block ends.

    Args:
        cluster: Whose gateway.
        name: Sets the calls apart from those of other loads.
        rate: Calls a second, where the machine can.
    """
    options = ["--rate", str(rate), "--name", name]
    command = [sys.executable, "-m", "tests.cluster.load", "gateway:50051", *options]
    process = await asyncio.create_subprocess_exec(
        *within(cluster.names, "load", command),
        cwd=ROOT,
        env=cluster.client_environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"begun\n"
        report = Report()
        yield report
        process.stdin.close()
        vars(report).update(json.loads(await process.stdout.readline()))
        sys.stdout.write(f"{name}: {report} {report.rate:.1f} calls/s\n")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def main() -> None:
    """Prints "begun" after the first call that succeeded, and the report at the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--name", required=True)
    options = parser.parse_args()
    report = asyncio.run(load(options.target, options.rate, options.name))
    print(json.dumps(asdict(report)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
