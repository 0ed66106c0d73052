"""Candidates are read the same in processes and in the gateway."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step
from dramaturg.judge.steps import parse_candidate
from dramaturg.service.threads import MAX_INLINE_LENGTH
from gateway.evaluations.scripts import reading
from gateway.evaluations.scripts.reading import PARSER_LIMITS, read_candidates
from gateway.processes.pool import ProcessPool
from tests.hostile.parsers import PATTERNS
from tests.support.processes import worker_processes

LISTED = "Before.\n1. Boil \u2028 water.\n2. Pour \N{HOT BEVERAGE}.\nNote: hot.\n"


@pytest.fixture(params=[1, 0], ids=["process", "thread"])
async def pool(request: pytest.FixtureRequest) -> AsyncIterator[ProcessPool]:
    pool = ProcessPool(request.param, PARSER_LIMITS)
    yield pool
    pool.close()


async def test_long_candidates_are_read_as_short_ones(pool: ProcessPool) -> None:
    texts = [LISTED + pattern * (4_000 // len(pattern)) for pattern in PATTERNS]
    candidates = [Candidate(id=str(number), text=text) for number, text in enumerate(texts)]
    script = Script(steps=[Step(text="Boil."), Step(text=" ")])
    candidates[1:1] = [Candidate(id="separate", script=script), Candidate(id="empty", text="")]
    assert sum(map(len, texts)) > 3 * MAX_INLINE_LENGTH
    assert await read_candidates(candidates, pool, "") == [parse_candidate(one) for one in candidates]


async def test_short_candidates_need_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = [Candidate(id=str(number), text="x" * (MAX_INLINE_LENGTH // 2)) for number in range(2)]
    pool = ProcessPool(1, PARSER_LIMITS)
    before = worker_processes()
    assert len(await read_candidates(candidates, pool, "")) == 2
    assert worker_processes() == before
    parsed: list[int] = []
    monkeypatch.setattr(reading, "parse_candidate", lambda one: parsed.append(os.getpid()))
    candidates[0].text += "x"
    await read_candidates(candidates, pool, "")
    assert parsed == []
    assert len(worker_processes()) == len(before) + 1
    pool.close()
