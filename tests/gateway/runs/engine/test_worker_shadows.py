"""Samples of runs whose judges have shadows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.judge.criteria import ABSEVAL
from gateway.settings import JudgeEntry
from tests.gateway.evaluations.test_shadows import fail, hang, outcomes, shadows
from tests.support.engines import Runs, judges_of, open_runs, script_rows, scripts_spec
from tests.support.gateway import Answer, Fake, agents


@asynccontextmanager
async def shadowed_runs(url: str, answer: Answer) -> AsyncIterator[Runs]:
    """An engine whose critic has a shadow."""
    async with judges_of([*agents(), Fake("critic", answer, name="shadow")]) as entries:
        entries[-1] = JudgeEntry.model_validate(
            {**entries[-1].model_dump(exclude_unset=True), "shadow": {"of": "fake"}}
        )
        async with open_runs(url, entries) as runs:
            yield runs


async def test_a_run_keeps_what_its_shadow_says_and_does_not_wait_in_a_slot(sqlite_url: str) -> None:
    together = 0
    most = 0
    released = asyncio.Event()

    async def slow(request: Any) -> Assessment:
        nonlocal together, most
        together += 1
        most = max(most, together)
        if together >= 4:
            released.set()
        async with asyncio.timeout(20):
            await released.wait()
        return await fail(request)

    async with shadowed_runs(sqlite_url, slow) as runs:
        spec = scripts_spec()
        spec.limits.max_concurrent_samples = 1
        run_id = await runs.create(spec, script_rows(4))
        run = await runs.ended(run_id)
        samples = runs.samples(run_id)
    # One sample at a time is judged; the shadow answers when it has all four.
    assert most == 4
    assert run.counts.succeeded == 4
    assert run.counts.coverage == 1
    for sample in samples:
        assert outcomes(sample.scripts) == {verdict_pb2.OUTCOME_PASS}
        (one,) = shadows(sample.scripts)
        assert {verdict.outcome for verdict in one.assessment.verdicts} == {verdict_pb2.OUTCOME_FAIL}
        assert len(sample.scripts.candidates[0].verdicts) == len(ABSEVAL)


async def test_a_run_that_is_cancelled_waits_for_no_shadow(sqlite_url: str) -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async def hanging(request: Any) -> Assessment:
        begun.set()
        try:
            return await hang(request)
        finally:
            gone.set()

    async with shadowed_runs(sqlite_url, hanging) as runs:
        run_id = await runs.create(scripts_spec(), script_rows(2))
        await begun.wait()
        await runs.change(run_id, run_pb2.RUN_STATE_CANCELLED)
        assert (await runs.ended(run_id)).state == run_pb2.RUN_STATE_CANCELLED
        async with asyncio.timeout(20):
            await gone.wait()
