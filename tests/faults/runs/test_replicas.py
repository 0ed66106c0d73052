"""Several gateways on one PostgreSQL: what one had when it died, froze or lost the database goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from dramaturg.api.evaluation.v1.run_service_pb2 import CancelRunRequest
from tests.faults.runs.conftest import SAMPLES
from tests.faults.runs.test_kills import CONCURRENCY
from tests.support.fleet import LEASE_SECONDS, SUCCEEDED, comparable, fleet, report
from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(240)]


@pytest.mark.parametrize(("gateways", "dead"), [(2, 0), (2, 1), (3, 0)])
async def test_a_dead_gateways_work_is_taken_over(
    gateways: int, dead: int, postgres_url: str, undisturbed: list[bytes], tmp_path: Path
) -> None:
    async with fleet(tmp_path, postgres_url, gateways=gateways) as made:
        begun = time.monotonic()
        run_id = await made.create(SAMPLES)
        # In the middle of batches: at their ends nothing may be under way.
        await made.done(run_id, SAMPLES // 3 + 13)
        in_flight = await made.kill(made.gateways[dead])
        died = time.monotonic()
        run = await made.ended(run_id)
        ended = time.monotonic()
        samples = await made.samples(run_id)
        accounts = await made.accounts(samples)
    report(
        gateways=gateways,
        dead=dead,
        seconds=round(ended - begun, 1),
        after_the_death=round(ended - died, 1),
        in_flight=in_flight,
        reported=accounts.reported.total(),
        twice=accounts.twice.total(),
        interrupted=run.progress.interrupted_sample_count,
    )
    assert run.state == SUCCEEDED, run.state_reason
    assert comparable(samples) == undisturbed
    assert not accounts.unexplained, "paid for twice, and not under way at the death"
    assert accounts.reported.total() <= CONCURRENCY


async def test_a_gateway_that_froze_ends_itself_and_changes_nothing(
    postgres_url: str, undisturbed: list[bytes], tmp_path: Path
) -> None:
    async with fleet(tmp_path, postgres_url, gateways=2) as made:
        run_id = await made.create(SAMPLES)
        await made.done(run_id, SAMPLES // 4)
        frozen = made.gateways[0]
        pid = frozen.pid
        os.kill(pid, signal.SIGSTOP)
        # A frozen process still accepts connections: only the other one can be asked meanwhile.
        made.gateways = made.gateways[1:]
        await asyncio.sleep(LEASE_SECONDS + 2)
        os.kill(pid, signal.SIGCONT)
        assert await frozen.ended() == 70
        assert "could not be renewed" in frozen.log.read_text()
        run = await made.ended(run_id)
        samples = await made.samples(run_id)
    assert (run.state, run.progress.succeeded_count) == (SUCCEEDED, SAMPLES), run.state_reason
    assert comparable(samples) == undisturbed


@pytest.mark.parametrize("crash", [False, True])
async def test_a_database_that_restarts_only_delays(
    crash: bool,
    postgres_server: PostgresServer,
    postgres_url: str,
    undisturbed: list[bytes],
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path, postgres_url, lease=30) as made:
        run_id = await made.create(SAMPLES)
        await made.done(run_id, SAMPLES // 3)
        in_flight = made.model.in_flight
        # In this thread: the server ends with the thread that started it.
        postgres_server.restart(crash=crash)
        run = await made.ended(run_id)
        samples = await made.samples(run_id)
        twice = sum(made.bought_twice().values())
    report(database="crashed" if crash else "restarted", in_flight=in_flight, twice=twice)
    assert run.state == SUCCEEDED, run.state_reason
    assert comparable(samples) == undisturbed
    assert twice == 0


async def test_a_cancelled_run_stops_spending_within_a_second(postgres_url: str, tmp_path: Path) -> None:
    async with fleet(tmp_path, postgres_url, gateways=2, latency=0.3) as made:
        run_id = await made.create(SAMPLES)
        await made.done(run_id, 20)
        # The one that is asked, and the one that is not.
        await made.call(lambda stub: stub.CancelRun(CancelRunRequest(run_id=run_id)))
        await asyncio.sleep(1)
        spent = made.model.calls.total()
        await asyncio.sleep(2)
        assert made.model.calls.total() == spent
        assert (await made.get(run_id)).progress.running_count == 0
