"""The pool of solver processes: bounded, killable, warm."""

from __future__ import annotations

import asyncio
import os
from random import Random

import pytest

from dramaturg.testing import until
from services.graph.distance.problem import Mode, Problem
from services.graph.solver import distance_task, feedback_task
from services.graph.solver.pool import SolverError, SolverPool
from tests.support.graphs import random_script

EASY = distance_task(Problem((1, 1), (), (), ((False,),), Mode.PROSCRIPT))


def hard_task() -> dict[str, object]:
    rng = Random(1)
    one, other = (random_script(40, rng) for _ in range(2))
    for graph in (one, other):
        graph.add_edges_from((i, j) for i in range(40) for j in range(i + 1, 40) if rng.random() < 0.12)
    nothing = tuple((False,) * 40 for _ in range(40))
    return distance_task(Problem((40, 40), tuple(one.edges), tuple(other.edges), nothing, Mode.PROSCRIPT))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_process_is_used_again() -> None:
    async with SolverPool(2) as pool:
        await pool.warm()
        before = pool.process_ids
        for _ in range(3):
            answer = await pool.run(EASY, 30)
            assert answer["edits"]["replaced_events"] == 1
        assert pool.process_ids == before
    assert not any(is_alive(pid) for pid in before)


async def test_a_process_is_in_the_session_of_the_service_and_in_a_group_of_its_own() -> None:
    async with SolverPool(1) as pool:
        await pool.run(EASY, 30)
        (pid,) = pool.process_ids
        # Ctrl-C does not reach it. Linux compares the niceness of processes of one session alone.
        assert (os.getpgid(pid), os.getsid(pid)) == (pid, os.getsid(0))


async def test_a_cancelled_task_frees_its_process_at_once() -> None:
    async with SolverPool(1) as pool:
        task = asyncio.create_task(pool.run(hard_task(), 120))
        await until(lambda: bool(pool.process_ids))
        (busy,) = pool.process_ids
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await pool.run(EASY, 30))["edits"]["replaced_events"] == 1
        assert busy not in pool.process_ids
        await until(lambda: not is_alive(busy))


async def test_time_over_gives_what_is_known() -> None:
    async with SolverPool(1) as pool:
        await pool.run(EASY, 30)
        answer = await pool.run(hard_task(), 1.0)
        assert answer["lower"] < sum(answer["edits"].values())


async def test_a_process_that_is_killed_is_replaced() -> None:
    async with SolverPool(1) as pool:
        await pool.run(EASY, 30)
        (pid,) = pool.process_ids
        os.kill(pid, 9)
        with pytest.raises(SolverError):
            await pool.run(EASY, 30)
        assert (await pool.run(EASY, 30))["lower"] == 1


async def test_no_more_processes_than_allowed() -> None:
    async with SolverPool(1) as pool:
        answers = await asyncio.gather(*(pool.run(feedback_task([(0, 1, 0.5)], 2), 30) for _ in range(5)))
        assert all(answer == {"removed": [], "proven": True} for answer in answers)
        assert len(pool.process_ids) == 1
