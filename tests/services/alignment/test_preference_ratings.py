"""MeasurePreferences: strengths of systems."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import optimize, special

from dramaturg.api.alignment.v1 import preference_pb2 as pb
from services.alignment.preference import PRIOR

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub


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


def played(
    *games: tuple[str, str, float], times: int = 20, baseline: str = ""
) -> pb.MeasurePreferencesRequest:
    request = pb.MeasurePreferencesRequest(resample_count=50, baseline=baseline)
    for prompt in range(times):
        for first, second, preference in games:
            request.pairs.add(prompt=str(prompt), first=first, second=second, preference=preference)
    return request


async def test_a_system_that_wins_everything_has_a_rating_by_a_prior_that_is_named(
    alignment: AlignmentServiceAsyncStub,
) -> None:
    request = played(("a", "b", 1))
    request.pairs.add(first="a", second="b")
    found = await alignment.MeasurePreferences(request)
    assert found.rating_prior == PRIOR
    best, worst = (one.elo for one in found.ratings)
    # 20 wins and a draw.
    assert best.value - worst.value == pytest.approx(400 * math.log10(20.5 / 0.5), abs=1e-3)
    assert "the prior gives its rating" in best.interval_withheld
    rate = found.win_rates[0].win_rate
    assert (rate.value, rate.upper, rate.interval_method) == (1.0, 1.0, "wilson")
    assert found.abstained_count == 1


async def test_the_prior_is_one_draw_a_pair_in_whatever_order_it_is_shown(
    alignment: AlignmentServiceAsyncStub,
) -> None:
    both = await alignment.MeasurePreferences(played(("a", "b", 1), ("b", "a", 0), times=10))
    one = await alignment.MeasurePreferences(played(("a", "b", 1)))
    assert both.ratings[0].elo.value == pytest.approx(one.ratings[0].elo.value)


async def test_only_those_beyond_the_border_lack_an_interval(alignment: AlignmentServiceAsyncStub) -> None:
    request = tournament(120)
    for prompt in range(30):
        request.pairs.add(prompt=str(prompt), first="best", second="c", preference=1)
    found = await alignment.MeasurePreferences(request)
    assert found.rating_prior == PRIOR
    by_name = {one.system: one.elo for one in found.ratings}
    assert found.ratings[0].system == "best"
    assert not by_name["best"].HasField("lower")
    assert by_name["b"].lower < by_name["b"].value < by_name["b"].upper
    without = {one.system: one.elo for one in (await alignment.MeasurePreferences(tournament(120))).ratings}
    assert by_name["c"].value == pytest.approx(without["c"].value, abs=20)


async def test_systems_that_no_comparison_connects_are_said_so(alignment: AlignmentServiceAsyncStub) -> None:
    games = (("a", "b", 1), ("a", "b", 0), ("c", "d", 1), ("d", "c", 1))
    found = await alignment.MeasurePreferences(played(*games))
    assert {one.elo.undefined for one in found.ratings} == {
        "the systems are 2 groups that no comparison connects: a, b | c, d; name a baseline to rate its group"
    }
    assert not found.rating_prior
    found = await alignment.MeasurePreferences(played(*games, baseline="d"))
    by_name = {one.system: one.elo for one in found.ratings}
    assert by_name["c"].value == pytest.approx(0.0, abs=1e-6)
    assert by_name["a"].undefined == "no chain of comparisons connects it with d"
    assert not found.rating_prior


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
