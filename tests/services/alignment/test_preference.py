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


def leaderboard(
    generator: np.random.Generator, systems: int, prompts: int
) -> tuple[pb.MeasurePreferencesRequest, dict[str, float]]:
    """Pairs of systems with a baseline on prompts of unequal difficulty, and the rates at equal lengths.

    Systems write longer texts for harder, or for easier, prompts.
    """
    request = pb.MeasurePreferencesRequest(baseline="base")
    difficulty = generator.normal(0, generator.uniform(0.8, 1.5), prompts)
    truth = {}
    for system in map(str, range(systems)):
        linked = generator.uniform(0.3, 1) * generator.choice([-1, 1])
        longer = 0.5 * generator.normal() + linked * difficulty + generator.normal(0, 1, prompts)
        odds = generator.normal(-0.5, 1) + generator.uniform(0.5, 1.5) * difficulty
        truth[system] = float(special.expit(odds).mean())
        effect = generator.uniform(0.5, 1.5) * np.tanh(longer / longer.std())
        wins = generator.random(prompts) < special.expit(odds + effect)
        for prompt in range(prompts):
            request.pairs.add(
                prompt=str(prompt),
                first=system,
                second="base",
                preference=float(wins[prompt]),
                first_length=5000 + 100 * longer[prompt],
                second_length=5000,
            )
    return request, truth


@pytest.mark.slow
async def test_difficulties_are_estimated_from_the_other_systems(
    alignment: AlignmentServiceAsyncStub,
) -> None:
    """Rates that are adjusted for length alone are off where lengths go with difficulty.

    The request that has the pairs of one system at a time is adjusted for length alone.
    """
    table: dict[int, dict[str, float]] = {}
    for systems in (3, 10, 30):
        errors: dict[str, list[float]] = {"alone": [], "joint": []}
        for seed in range(30 // systems):
            request, truth = leaderboard(np.random.default_rng(seed), systems, 800)
            for rate in (await alignment.MeasurePreferences(request)).win_rates:
                assert rate.length_control == pb.LENGTH_CONTROL_JOINT_DIFFICULTY
                errors["joint"].append(rate.length_controlled_win_rate.value - truth[rate.system])
            for system, right in truth.items():
                own = pb.MeasurePreferencesRequest(baseline="base")
                own.pairs.extend(pair for pair in request.pairs if pair.first == system)
                (rate,) = (await alignment.MeasurePreferences(own)).win_rates
                assert rate.length_control == pb.LENGTH_CONTROL_LENGTH_ALONE
                errors["alone"].append(rate.length_controlled_win_rate.value - right)
        table[systems] = {name: float(np.abs(found).mean()) for name, found in errors.items()}
    assert all(row["joint"] < row["alone"] for row in table.values())
    assert table[30]["joint"] < 0.6 * table[30]["alone"]


async def test_equal_lengths_outside_of_the_support_have_no_win_rate(
    alignment: AlignmentServiceAsyncStub,
) -> None:
    """A system of short texts, of which 4 % are longer than the baseline's and win."""
    request = pb.MeasurePreferencesRequest(baseline="base")
    for prompt in range(300):
        longer = prompt % 25 == 0
        request.pairs.add(
            prompt=str(prompt),
            first="model",
            second="base",
            preference=float(longer or prompt % 100 == 1),
            first_length=1100 if longer else 100 + prompt,
            second_length=1000,
        )
    (rate,) = (await alignment.MeasurePreferences(request)).win_rates
    assert rate.longer_share == pytest.approx(0.04)
    assert rate.length_controlled_win_rate.undefined == (
        "equal lengths are outside of the support: the system's text is shorter in 96 % of the pairs"
    )
    assert rate.win_rate.value < 0.06


async def test_difficulties_need_systems_that_share_the_prompts(alignment: AlignmentServiceAsyncStub) -> None:
    request, _ = leaderboard(np.random.default_rng(3), 3, 40)
    joint = (await alignment.MeasurePreferences(request)).win_rates
    assert {one.length_control for one in joint} == {pb.LENGTH_CONTROL_JOINT_DIFFICULTY}
    for pair in request.pairs:
        pair.prompt = f"{pair.first} {pair.prompt}"
    alone = (await alignment.MeasurePreferences(request)).win_rates
    assert {one.length_control for one in alone} == {pb.LENGTH_CONTROL_LENGTH_ALONE}
