"""A tenant that does its worst within its quota.

``python -m tests.hostile.noise TARGET TOKEN RUN_ID ATTACK...`` makes these attacks; all without a name.

It prints an empty JSON object once calls of several attacks have ended, and the number of ended calls by
attack and status when its input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc

from dramaturg.api.common.v1.script_pb2 import Candidate, Task
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import SummarizeRequest
from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceStub
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, RunSpec
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceStub
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.summary_pb2 import SummaryOptions, TagGrouping
from dramaturg.service.channel import open_channel
from dramaturg.service.settings import ChannelSettings
from dramaturg.testing import until
from tests.hostile.parsers import PATTERNS
from tests.support.bombs import GOOD_LINE, dictionary_bomb, empty_rows, line_bomb

CALLERS = 3
"""The callers of each attack."""
FIRST_CALLS, FIRST_ATTACKS = 6, 5
"""The calls, and the kinds of attacks, that have ended when the attack counts as begun."""
SECONDS = 60.0
CANDIDATES = 20
READS, WATCHES = 200, 300
"""The calls at once of the attacks of a viewer."""
BOMB_MB = 1000


class Noise:
    """The attacks of one tenant.

    Args:
        channel: The channel to the gateway.
        run_id: A run of the tenant that has ended.
    """

    def __init__(self, channel: grpc.aio.Channel, run_id: str) -> None:
        self._runs: Any = RunServiceStub(channel)
        self._evaluations: Any = EvaluationServiceStub(channel)
        self._run_id = run_id
        self._random = random.Random(0)
        self._bomb, self._empty = dictionary_bomb(), empty_rows(1_000_000)
        self._blank = line_bomb(BOMB_MB)

    async def wide_evaluations(self) -> None:
        pattern = self._random.choice(PATTERNS)
        steps = ("1. a\n2. " + pattern * 5_000)[:20_000]
        candidates = [Candidate(id=str(number), text=steps) for number in range(CANDIDATES)]
        request = EvaluateScriptsRequest(task=Task(goal="Make tea"), candidates=candidates)
        await _read(self._evaluations.EvaluateScripts(request, timeout=SECONDS))

    async def large_refused_requests(self) -> None:
        request = EvaluateScriptsRequest(task=Task(goal="Make tea"))
        for _ in range(500_000):
            request.candidates.add(id="a")
        await _read(self._evaluations.EvaluateScripts(request, timeout=SECONDS))

    async def reports(self) -> None:
        limit = self._random.randint(1, 1000)
        await _read(
            self._runs.GetReport(
                pb.GetReportRequest(run_id=self._run_id, sample_limit=limit), timeout=SECONDS
            )
        )

    async def exports(self) -> None:
        form = self._random.choice([*pb.ExportFormat.values()])
        await _read(
            self._runs.ExportResults(
                pb.ExportResultsRequest(run_id=self._run_id, format=form), timeout=SECONDS
            )
        )

    async def summaries(self) -> None:
        options = SummaryOptions(groupings=[TagGrouping(tags=["topic"])])
        await self._runs.GetSummary(
            pb.GetSummaryRequest(run_id=self._run_id, options=options), timeout=SECONDS
        )

    async def pages(self) -> None:
        token = ""
        for _ in range(20):
            request = pb.ListResultsRequest(run_id=self._run_id, page_size=1000, page_token=token)
            token = (await self._runs.ListResults(request, timeout=SECONDS)).next_page_token

    async def summaries_of_given_results(self) -> None:
        page = await self._runs.ListSamples(
            pb.ListSamplesRequest(run_id=self._run_id, page_size=200), timeout=SECONDS
        )
        requests = [SummarizeRequest(options=SummaryOptions())]
        requests += [SummarizeRequest(samples=page.samples) for _ in range(20)]
        await self._evaluations.Summarize(requests, timeout=SECONDS)

    async def watches(self) -> None:
        runs = (await self._runs.ListRuns(pb.ListRunsRequest(page_size=10), timeout=SECONDS)).runs
        run = self._random.choice(runs)
        await _read(self._runs.WatchRun(pb.WatchRunRequest(run_id=run.id), timeout=5))

    async def bursts_of_pages(self) -> None:
        request = pb.ListSamplesRequest(run_id=self._run_id, page_size=1000)
        calls = [self._runs.ListSamples(request, timeout=SECONDS) for _ in range(READS // CALLERS)]
        await _all_ended(calls)

    async def watches_of_an_ended_run(self) -> None:
        request = pb.WatchRunRequest(run_id=self._run_id)
        streams = [self._runs.WatchRun(request, timeout=SECONDS) for _ in range(WATCHES // CALLERS)]
        await _all_ended([_read(stream) for stream in streams])

    async def blank_datasets(self) -> None:
        spec = RunSpec(dataset=Dataset(content=self._blank))
        spec.scripts.SetInParent()
        await self._runs.CreateRun(pb.CreateRunRequest(spec=spec), timeout=SECONDS)

    async def datasets(self) -> None:
        content, form = self._random.choice(
            [
                (self._bomb, run_pb2.DATASET_FORMAT_PARQUET),
                (self._empty, run_pb2.DATASET_FORMAT_JSONL),
                (GOOD_LINE * 10_000, run_pb2.DATASET_FORMAT_JSONL),
            ]
        )
        spec = RunSpec(dataset=Dataset(content=content, format=form))
        spec.scripts.SetInParent()
        await self._runs.CreateRun(pb.CreateRunRequest(spec=spec), timeout=SECONDS)

    def attacks(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return {name: getattr(self, name) for name in ATTACKS}


ATTACKS = tuple(name for name in vars(Noise) if not name.startswith("_") and name != "attacks")
"""The names of the attacks."""


async def _all_ended(calls: Sequence[Awaitable[object]]) -> None:
    """Waits for all calls; raises the first error."""
    for end in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(end, BaseException):
            raise end


async def _read(stream: Any) -> None:
    async for _ in stream:
        pass


async def _repeat(name: str, attack: Callable[[], Awaitable[None]], ends: Counter[str]) -> None:
    while True:
        try:
            await attack()
        except grpc.aio.AioRpcError as error:
            ends[f"{name} {error.code().name}"] += 1
        else:
            ends[f"{name} OK"] += 1
        await asyncio.sleep(0.02)


async def _main() -> None:
    target, token, run_id, *names = sys.argv[1:]
    ends: Counter[str] = Counter()
    async with open_channel(target, ChannelSettings(token_file=Path(token))) as channel:
        attacks = Noise(channel, run_id).attacks()
        callers = [
            asyncio.create_task(_repeat(name, attack, ends))
            for name, attack in attacks.items()
            if not names or name in names
            for _ in range(CALLERS)
        ]
        calls, kinds = min(FIRST_CALLS, len(callers)), min(FIRST_ATTACKS, len(callers) // CALLERS)
        # Each call ends by its timeout, also on a busy machine.
        await until(
            lambda: ends.total() >= calls and len({end.split()[0] for end in ends}) >= kinds, 2 * SECONDS
        )
        sys.stdout.write("{}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        del callers
        sys.stdout.write(json.dumps(dict(sorted(ends.items()))))
        sys.stdout.flush()
        # The calls in progress end with the process.
        os._exit(0)


if __name__ == "__main__":
    asyncio.run(_main())
