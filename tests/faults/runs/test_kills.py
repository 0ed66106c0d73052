"""A run whose processes are killed finds what an undisturbed one finds, and pays for nothing twice."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.faults.runs.conftest import SAMPLES
from tests.support.fleet import SUCCEEDED, Fleet, comparable, fleet, report, seeds
from tests.support.processes import ServiceProcess

KILLS = 2
"""How often a process is killed in one run."""

CONCURRENCY = 16
"""Samples at once, each with one model call under way at most."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def victim(made: Fleet, name: str) -> ServiceProcess:
    return {"gateway": made.gateways[0], "generation": made.generation, "judge": made.judge}[name]


@pytest.mark.parametrize("seed", seeds("0"))
@pytest.mark.parametrize(
    "name",
    [
        "gateway",
        pytest.param("generation", marks=pytest.mark.endurance),
        pytest.param("judge", marks=pytest.mark.endurance),
    ],
)
async def test_a_kill_changes_no_result_and_buys_nothing_twice(
    name: str, seed: int, store_url: str, undisturbed: list[bytes], tmp_path: Path
) -> None:
    moments = random.Random(f"{name}/{seed}")
    in_flight = 0
    async with fleet(tmp_path, store_url) as made:
        run_id = await made.create(SAMPLES)
        for count in sorted(moments.sample(range(SAMPLES * 9 // 10), KILLS)):
            await made.done(run_id, count)
            await asyncio.sleep(moments.uniform(0, 0.3))
            killed = victim(made, name)
            in_flight += await made.kill(killed)
            await killed.start()
        run = await made.ended(run_id)
        samples = await made.samples(run_id)
        accounts = await made.accounts(samples)
    report(
        killed=name,
        seed=seed,
        store=store_url.partition(":")[0],
        in_flight=in_flight,
        reported=accounts.reported.total(),
        twice=accounts.twice.total(),
        interrupted=run.progress.interrupted_sample_count,
    )
    assert (run.state, run.progress.succeeded_count) == (SUCCEEDED, SAMPLES), run.state_reason
    assert comparable(samples) == undisturbed
    assert not accounts.unexplained, "paid for twice, and not under way at a kill"
    # The model's server counts fewer in flight where it had answered and nobody had kept the answer yet.
    assert accounts.reported.total() <= KILLS * CONCURRENCY
