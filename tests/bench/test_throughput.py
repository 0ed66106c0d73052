"""The benchmark of throughput runs, and says what it measured."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from tests.support.command_line import ROOT

KINDS = ("scripts_8", "scripts_1", "pairs", "decisions", "dialogues", "graphs")
# Timers of the server of models are exact to a millisecond of its 20.
LEAST = 0.9
SETUPS = ("one_process", "events", "untraced", "calls", "bare_client", "floor")


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_it_measures_every_kind_and_setup() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "bench/throughput.py", "--quick", "--json"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    result = json.loads(out)
    assert result["judgements"] == 32
    assert set(result["kinds"]) == set(KINDS)
    for kind in result["kinds"].values():
        assert kind["wall_over_ideal"] > LEAST
        assert kind["cpu_ms_per_call"] > 0
    for setup in (result, *(result[name] for name in SETUPS)):
        assert setup["wall_over_ideal"] > LEAST
        # 32 posts of the floor may take less than a tick of the processor's clock.
        assert setup["cpu_ms_per_judgement"] > 0 or setup is result["floor"]
        assert setup["peak_memory_mib"] > 10
