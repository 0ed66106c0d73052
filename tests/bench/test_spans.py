"""The benchmark of spans runs, and says what it measured."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.command_line import ROOT


@pytest.mark.slow
def test_it_measures_both() -> None:
    done = subprocess.run(
        [sys.executable, "bench/spans.py", "--json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["sdk_over_ours"] > 0
