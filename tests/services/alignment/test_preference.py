"""MeasurePreferences: win rates, length control, strengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from scipy import special

from dramaturg.api.alignment.v1 import preference_pb2 as pb

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub


async def test_length_control_removes_what_length_explains(alignment: AlignmentServiceAsyncStub) -> None:
    """The judge prefers longer texts, and the system writes longer ones: 50 % at equal lengths."""
    generator = np.random.default_rng(6)
    request = pb.MeasurePreferencesRequest(baseline="base", resample_count=1)
    for prompt in range(1500):
        longer = generator.normal(200, 150)
        odds = 1.5 * np.tanh(longer / 150)
        wins = float(generator.random() < special.expit(odds))
        request.pairs.add(
            prompt=str(prompt),
            first="model",
            second="base",
            preference=wins,
            first_length=1000 + longer,
            second_length=1000,
        )
    (rate,) = (await alignment.MeasurePreferences(request)).win_rates
    controlled = rate.length_controlled_win_rate
    assert rate.win_rate.value > 0.65
    assert controlled.lower < 0.5 < controlled.upper
    assert controlled.upper - controlled.lower < 0.2


async def test_length_control_is_that_of_alpaca_eval(alignment: AlignmentServiceAsyncStub) -> None:
    """alpaca-eval 0.6.6 with difficulties, and verbose and concise variants of the baseline: 34.7166 %."""
    generator = np.random.default_rng(7)
    difficulty = generator.normal(0, 1, 400)
    request = pb.MeasurePreferencesRequest(baseline="base", reference_systems=["concise", "verbose"])
    for system, constant, shift in (("model", -0.8, 0.4), ("concise", 0.0, -0.8), ("verbose", 0.0, 0.9)):
        longer = generator.normal(shift, 1, 400) * 300
        odds = constant - 1.2 * np.tanh(longer / longer.std(ddof=1)) + 0.9 * difficulty
        wins = generator.random(400) < special.expit(odds)
        for prompt in range(400):
            request.pairs.add(
                prompt=str(prompt),
                first=system,
                second="base",
                preference=float(wins[prompt]),
                first_length=5000 + longer[prompt],
                second_length=5000,
                difficulty=difficulty[prompt],
            )

    async def rate() -> float:
        (found,) = [
            one
            for one in (await alignment.MeasurePreferences(request)).win_rates
            if one.system == "model" and one.opponent == "base"
        ]
        return 100 * float(found.length_controlled_win_rate.value)

    assert await rate() == pytest.approx(34.7166, abs=0.1)
    # Without the references the package has 34.6776.
    del request.reference_systems[:]
    assert await rate() == pytest.approx(34.6776, abs=0.1)
    request.reference_systems.append("verbose")
    request.reference_weight = 5
    assert abs(await rate() - 34.7166) > 0.1


async def test_length_control_needs_lengths(alignment: AlignmentServiceAsyncStub) -> None:
    request = pb.MeasurePreferencesRequest(baseline="a")
    for preference in (0, 1):
        request.pairs.add(first="a", second="b", preference=preference, first_length=5)
    (rate,) = (await alignment.MeasurePreferences(request)).win_rates
    assert rate.length_controlled_win_rate.undefined == "a pair has no lengths"


async def test_a_system_against_itself_is_refused(alignment: AlignmentServiceAsyncStub) -> None:
    request = pb.MeasurePreferencesRequest()
    request.pairs.add(first="a", second="a", preference=1)
    with pytest.raises(grpc.aio.AioRpcError, match="is the first system"):
        await alignment.MeasurePreferences(request)
