"""The benchmark of throughput runs, and says what it measured."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from tests.support.command_line import ROOT


@pytest.mark.slow
async def test_it_measures_every_setup() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "bench/throughput.py", "--judgements", "24", "--concurrency", "8"),
        *("--latency", "0.02", "--json"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    result = json.loads(out)
    assert result["judgements"] == 24
    for setup in (result, *(result[name] for name in ("one_process", "untraced", "calls", "bare_client"))):
        assert setup["wall_over_ideal"] > 1
        assert setup["cpu_ms_per_judgement"] > 0
        assert setup["peak_memory_mib"] > 10
