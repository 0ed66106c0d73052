"""MeasurePreferences: win rates, length control, strengths."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from scipy import optimize, special

from dramaturg.api.alignment.v1 import preference_pb2 as pb
from services.alignment.preference import logistic

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub


def test_the_regression_is_that_of_scikit_learn() -> None:
    """LogisticRegression 1.9.1 without a penalty."""
    column = np.arange(24) % 5 - 2.0
    outcome = ((np.arange(24) * 7) % 11 < 6).astype(float)
    found = logistic(np.stack([np.ones(24), column], axis=1), outcome, np.ones(24))
    assert found is not None
    assert found.tolist() == pytest.approx([0.150493, -0.260961], abs=1e-5)


def test_determined_outcomes_have_no_finite_effects() -> None:
    column = np.arange(10.0)
    design = np.stack([np.ones(10), column], axis=1)
    assert logistic(design, (column > 4).astype(float), np.ones(10)) is None


def tournament(prompts: int = 300, position: float = 0.0, seed: int = 1) -> pb.MeasurePreferencesRequest:
    generator = np.random.default_rng(seed)
    strengths = {"a": 0.0, "b": 0.5, "c": 1.5}
    request = pb.MeasurePreferencesRequest(baseline="a", resample_count=200, adjust_position=position != 0)
    for prompt in range(prompts):
        for first, second in (("a", "b"), ("c", "a"), ("b", "c")):
            odds = strengths[first] - strengths[second] + position
            preference = 0.5 if generator.random() < 0.1 else float(generator.random() < special.expit(odds))
            request.pairs.add(prompt=str(prompt), first=first, second=second, preference=preference)
    return request


async def test_strengths_maximize_the_likelihood(alignment: AlignmentServiceAsyncStub) -> None:
    request = tournament()

    def loss(strengths: np.ndarray) -> float:
        own = dict(zip("abc", [0.0, *strengths], strict=True))
        return -math.fsum(
            pair.preference * special.log_expit(own[pair.first] - own[pair.second])
            + (1 - pair.preference) * special.log_expit(own[pair.second] - own[pair.first])
            for pair in request.pairs
        )

    best = optimize.minimize(loss, [0.0, 0.0]).x * 400 / math.log(10)
    found = await alignment.MeasurePreferences(request)
    assert [one.system for one in found.ratings] == ["c", "b", "a"]
    assert [one.elo.value for one in found.ratings] == pytest.approx([best[1], best[0], 0], abs=0.1)
    top = found.ratings[0].elo
    assert top.lower < top.value < top.upper
    assert top.interval_method == "bootstrap-percentile"
    (rate,) = [one for one in found.win_rates if {one.system, one.opponent} == {"b", "c"}]
    values = [pair.preference for pair in request.pairs if pair.first == "b"]
    assert rate.win_rate.value == pytest.approx(np.mean(values))
    assert rate.draw_count == sum(value == 0.5 for value in values)


async def test_the_effect_of_the_position_is_found(alignment: AlignmentServiceAsyncStub) -> None:
    found = await alignment.MeasurePreferences(tournament(1000, position=1.0))
    effect = found.position_effect
    # Draws as half wins shrink effects a little.
    assert effect.lower < 0.9 < effect.upper + 0.1


async def test_a_system_that_wins_everything_has_no_rating(alignment: AlignmentServiceAsyncStub) -> None:
    request = pb.MeasurePreferencesRequest(resample_count=50)
    for prompt in range(20):
        request.pairs.add(prompt=str(prompt), first="a", second="b", preference=1)
    request.pairs.add(first="a", second="b")
    found = await alignment.MeasurePreferences(request)
    assert "wins, or loses, all" in found.ratings[0].elo.undefined
    rate = found.win_rates[0].win_rate
    assert (rate.value, rate.upper, rate.interval_method) == (1.0, 1.0, "wilson")
    assert found.abstained_count == 1


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
    (rate, *_) = (await alignment.MeasurePreferences(tournament(20))).win_rates
    assert rate.length_controlled_win_rate.undefined == "a pair has no lengths"


async def test_a_system_against_itself_is_refused(alignment: AlignmentServiceAsyncStub) -> None:
    request = pb.MeasurePreferencesRequest()
    request.pairs.add(first="a", second="a", preference=1)
    with pytest.raises(grpc.aio.AioRpcError, match="is the first system"):
        await alignment.MeasurePreferences(request)


@pytest.mark.slow
@pytest.mark.parametrize("prompts", [30, 150])
async def test_intervals_of_ratings_cover(alignment: AlignmentServiceAsyncStub, prompts: int) -> None:
    # The truth with draws as half wins.
    truth = {
        one.system: one.elo.value for one in (await alignment.MeasurePreferences(tournament(40000))).ratings
    }
    covered = rounds = 0
    for seed in range(200):
        found = await alignment.MeasurePreferences(tournament(prompts, seed=seed + 2))
        for one in found.ratings:
            if one.system != "a" and one.elo.HasField("lower"):
                rounds += 1
                covered += one.elo.lower <= truth[one.system] <= one.elo.upper
    assert rounds > 350
    assert 0.92 <= covered / rounds <= 0.98
