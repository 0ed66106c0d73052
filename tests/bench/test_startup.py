"""The benchmark of start-up runs, and says what it measured."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from tests.support.command_line import ROOT

MEASURED = {
    "python -c pass",
    "dramaturg --help",
    "dramaturg --version",
    "one offline sample",
    "import dramaturg",
    "import dramaturg.integrations.judge",
    "import dramaturg.client",
}


@pytest.mark.slow
async def test_it_measures_every_command() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "bench/startup.py", "--quick", "--json"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    measured = json.loads(out)["measured"]
    assert set(measured) == MEASURED
    for one in measured.values():
        assert one["wall_seconds"] > 0
        assert one["cpu_seconds"] >= 0
        assert one["wall_ratio"] > 0
