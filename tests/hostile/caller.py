"""A tenant that makes small calls: ``python -m tests.hostile.caller TARGET TOKEN RUN_ID COUNT``.

For each line of its input it makes the calls and prints their latencies in seconds by method, as a JSON
object.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from dramaturg.api.common.v1.script_pb2 import Candidate, Task
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceStub
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceStub
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.service.channel import open_channel
from dramaturg.service.settings import ChannelSettings

SECONDS = 60.0
PAUSE_SECONDS = 0.01


async def _evaluate(stub: Any) -> None:
    request = EvaluateScriptsRequest(
        task=Task(goal="Make tea"), candidates=[Candidate(id="a", text="1. Boil.")]
    )
    async for _ in stub.EvaluateScripts(request, timeout=SECONDS):
        pass


async def _latencies(call: Callable[[], Awaitable[object]], count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        begun = time.monotonic()
        await call()
        seconds.append(time.monotonic() - begun)
        await asyncio.sleep(PAUSE_SECONDS)
    return seconds


async def _main() -> None:
    target, token, run_id, count = sys.argv[1:]
    async with open_channel(target, ChannelSettings(token_file=Path(token))) as channel:
        runs: Any = RunServiceStub(channel)
        evaluations: Any = EvaluationServiceStub(channel)
        calls: Mapping[str, Callable[[], Awaitable[object]]] = {
            "ListRuns": lambda: runs.ListRuns(pb.ListRunsRequest(), timeout=SECONDS),
            "GetRun": lambda: runs.GetRun(pb.GetRunRequest(run_id=run_id), timeout=SECONDS),
            "EvaluateScripts": lambda: _evaluate(evaluations),
        }
        while await asyncio.to_thread(sys.stdin.readline):
            found = {name: await _latencies(call, int(count)) for name, call in calls.items()}
            sys.stdout.write(f"{json.dumps(found)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main())
