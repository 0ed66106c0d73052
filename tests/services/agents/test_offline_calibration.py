"""The rates that the calibration states, on a part of the data that they were measured on."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import offline_screen


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_stated_rates_hold(data_dir: Path) -> None:
    rates = offline_screen.evaluate(offline_screen.read(data_dir / "coscript" / "test_data.json", goals=250))
    assert rates["off topic, own goal"] < 0.025
    assert rates["off topic, goal of another category"] > 0.97
    assert rates["off topic, goal of the same category"] > 0.85
    assert rates["plain constraint, right of the answered"] > 0.87
    assert 0.2 < rates["plain constraint, answered"] < 0.45
