"""The benchmark of calls runs, and says what it measured."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.command_line import ROOT


@pytest.mark.slow
def test_it_measures_unary_calls_streams_and_spans() -> None:
    command = [sys.executable, "bench/calls.py", "--rounds", "1", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    ratios = json.loads(done.stdout)
    assert set(ratios) == {"unary", "streamed_message", "unary_traced"}
    assert all(ratio > 0 for ratio in ratios.values())
