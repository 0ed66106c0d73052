"""A run whose batches fail waits ever longer, and in the end fails itself."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from dramaturg.api.evaluation.v1 import run_pb2
from gateway.runs.engine import stalls
from gateway.runs.engine.parts import Part
from gateway.runs.engine.stalls import Stall
from tests.support.engines import runs_with, script_rows, scripts_spec


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(stalls, "time", made)
    return made


def test_pauses_double_to_the_longest(clock: Clock) -> None:
    stall, pauses = Stall(600), []
    for _ in range(7):
        stall.note(3, ["an error"])
        pauses.append(stall.pause())
        clock.now += pauses[-1]
        assert stall.pause() == 0
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_a_run_has_stood_still_for_too_long(clock: Clock) -> None:
    stall = Stall(600)
    stall.note(3, [])
    clock.now += 1000
    assert stall.reason() == ""
    stall.note(3, ["the first", "the last"])
    clock.now += 599
    stall.note(3, [])
    assert stall.reason() == ""
    clock.now += 1
    assert stall.reason().startswith("no sample was done in 600 s, since its batches fail: the last.")


def test_a_sample_that_is_done_ends_it(clock: Clock) -> None:
    stall = Stall(600)
    stall.note(3, ["an error"])
    stall.note(3, ["an error"])
    clock.now += 700
    stall.note(4, [])
    assert (stall.pause(), stall.reason()) == (0, "")
    # Whatever failed since then counts from then on.
    stall.note(5, ["another"])
    assert (stall.pause(), stall.reason()) == (1, "")


async def test_batches_that_keep_failing_fail_the_run(
    each_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[float] = []

    async def fail(part: Part, indices: Sequence[int]) -> None:
        begun.append(time.monotonic())
        raise NameError("name 'gone' is not defined")

    monkeypatch.setattr(Part, "evaluate", fail)
    monkeypatch.setattr(stalls, "FIRST_PAUSE_SECONDS", 0.4)
    async with runs_with(each_store_url, stall_seconds=1, control_seconds=0.05) as runs:
        run = await runs.ended(await runs.create(scripts_spec(), script_rows(30)))
    assert run.state == run_pb2.RUN_STATE_FAILED
    assert "since its batches fail: NameError: name 'gone' is not defined" in run.state_reason
    assert (run.counts.samples, run.counts.succeeded, run.counts.failed) == (30, 0, 0)
    # Pauses of 0.4, 0.8 s: three rounds at most, each of as many batches as the 30 samples make.
    assert 2 <= len(begun) <= 3 * 2


async def test_batches_that_fail_for_a_while_do_not(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = Part.evaluate
    failed: list[Sequence[int]] = []

    async def fail_first(part: Part, indices: Sequence[int]) -> None:
        if len(failed) < 3:
            failed.append(indices)
            raise ImportError("no module of that name")
        await evaluate(part, indices)

    monkeypatch.setattr(Part, "evaluate", fail_first)
    monkeypatch.setattr(stalls, "FIRST_PAUSE_SECONDS", 0.05)
    async with runs_with(sqlite_url, control_seconds=0.05) as runs:
        run = await runs.ended(await runs.create(scripts_spec(), script_rows(30)))
    assert (run.state, run.state_reason) == (run_pb2.RUN_STATE_SUCCEEDED, "")
    assert (run.counts.succeeded, run.counts.interrupted, len(failed)) == (30, 0, 3)
