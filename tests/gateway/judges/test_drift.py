"""The exact test of repeated answers: its error, its power, and its figures against counting by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from gateway.judges.drift import ERROR, YEAR, Answer, Drift, least_changed, level_of, measure

DAY = timedelta(days=1)
Groups = Sequence[tuple[Sequence[Answer], Sequence[Answer]]]


def answers(outcomes: Sequence[str]) -> Sequence[Answer]:
    return [{"clear": outcome} for outcome in outcomes]


def measured(groups: Groups, level: float = 0.05) -> Drift:
    base = {str(index): old for index, (old, _) in enumerate(groups)}
    return measure(base, {str(index): new for index, (_, new) in enumerate(groups)}, level)


def differing(base: Sequence[Answer], new: Sequence[Answer]) -> int:
    return sum(a.get(key) != b.get(key) for a in base for b in new for key in {*a, *b})


def by_counting(groups: Groups) -> float:
    """The p-value by listing every division of every candidate's answers."""
    totals: dict[int, float] = {0: 1.0}
    for base, new in groups:
        bag, sums = [*base, *new], []
        made: dict[int, float] = defaultdict(float)
        for chosen in combinations(range(len(bag)), len(base)):
            rest = [one for index, one in enumerate(bag) if index not in chosen]
            sums.append(differing([bag[index] for index in chosen], rest))
        for (total, share), each in product(totals.items(), sums):
            made[total + each] += share / len(sums)
        totals = made
    observed = sum(differing(base, new) for base, new in groups)
    return sum(share for total, share in totals.items() if total >= observed)


OUTCOMES = st.fixed_dictionaries({"clear": st.sampled_from("PFA"), "short": st.sampled_from("PF")})


@given(
    st.lists(
        st.tuples(st.lists(OUTCOMES, min_size=3, max_size=3), st.lists(OUTCOMES, min_size=2, max_size=2)),
        max_size=4,
    )
)
def test_the_p_value_is_the_share_of_divisions_that_differ_as_much(groups: Groups) -> None:
    assert measured(groups).p_value == pytest.approx(by_counting(groups), abs=2e-12)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5])
def test_an_unchanged_judge_exceeds_the_error_at_no_level(share: float) -> None:
    """All outcomes of two candidates, one of whose answers are as noisy as said, the other half as much."""
    found: list[tuple[float, float]] = []
    for outcome in product("PF", repeat=8):
        first, second = outcome[:4], outcome[4:]
        weight = 1.0
        for one, rate in ((first, share), (second, share / 2)):
            weight *= rate ** one.count("F") * (1 - rate) ** one.count("P")
        groups = [(answers(one[:2]), answers(one[2:])) for one in (first, second)]
        found.append((measured(groups).p_value, weight))
    for level in {p for p, _ in found}:
        assert sum(weight for p, weight in found if p <= level) <= level + 1e-9


def test_a_large_set_is_as_exact_as_a_small_one() -> None:
    """Sums of many candidates are convolved by transforms; the tail agrees with a normal approximation."""
    groups = [(answers("PPPFFPF"), answers("PFPFPFF"))] * 600
    found = measured(groups)
    one = measured(groups[:1])
    assert found.compared == 600
    assert one.p_value == pytest.approx(by_counting(groups[:1]))
    sums = np.array([differing(*groups[0])])
    bag = [*groups[0][0], *groups[0][1]]
    every = np.array(
        [
            differing([bag[i] for i in chosen], [bag[i] for i in range(14) if i not in chosen])
            for chosen in combinations(range(14), 7)
        ]
    )
    z = (600 * sums[0] - 0.5 - 600 * every.mean()) / (every.std() * 600**0.5)
    assert found.p_value == pytest.approx(norm.sf(z), rel=0.02)


@pytest.mark.parametrize(("base", "new"), [(3, 3), (5, 2), (7, 7), (2, 1)])
def test_the_fewest_changed_candidates_are_those_that_are_found(base: int, new: int) -> None:
    level = level_of(DAY)
    least = least_changed(base, new, level)
    same = [(answers("P" * base), answers("P" * new))] * 40
    changed = [(answers("P" * base), answers("F" * new))] * least
    found = measured([*same, *changed], level)
    assert found.found
    assert (found.compared, found.changed) == (40 + least, least)
    assert found.lower < least / (40 + least) < found.upper
    assert not measured([*same, *changed[1:]], level).found


def test_scores_are_compared_as_above_the_median_or_not() -> None:
    low, high = [{"tone": 2.0}] * 3, [{"tone": 4.0}] * 3
    assert measured([(low, high)]).p_value == pytest.approx(2 / 20)
    assert measured([(low, low)]).p_value == 1.0
    assert measured([(low, high)]).changed == 1


def test_a_candidate_without_answers_of_both_groups_is_left_out() -> None:
    found = measure(
        {"a": answers("PP"), "b": answers("PP"), "c": []}, {"a": answers("FF"), "d": answers("F")}, 0.1
    )
    assert (found.compared, found.changed) == (1, 1)
    nothing = measure({}, {}, 0.1)
    assert (nothing.compared, nothing.p_value, nothing.found) == (0, 1.0, False)


def test_the_errors_of_a_year_sum_to_one_percent() -> None:
    for interval in (timedelta(minutes=1), DAY, timedelta(days=7), 2 * YEAR):
        checks = max(1, -(-YEAR // interval))
        assert checks * level_of(interval) == pytest.approx(ERROR)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "least"), [(0.0, 10), (0.2, 6), (0.5, 0)])
def test_alarms_of_years_are_rare_and_a_swapped_model_is_found_at_once(noise: float, least: int) -> None:
    """Years of weekly checks of 60 candidates; a swap changes a quarter of what the judge tends to say."""
    draw, level = np.random.default_rng(7), level_of(timedelta(days=7))
    alarms = found = 0
    for _ in range(10):
        tends = draw.random(60) < 0.6
        swapped = np.where(draw.random(60) < 0.25, ~tends, tends)

        def asked(by: np.ndarray) -> dict[str, Sequence[Answer]]:
            said = by[:, None] ^ (draw.random((60, 5)) < noise)
            return {str(index): answers(["PF"[int(one)] for one in row]) for index, row in enumerate(said)}

        base = asked(tends)
        alarms += any(measure(base, asked(tends), level).found for _ in range(52))
        found += measure(base, asked(swapped), level).found
    # At an error of 0.01 a year 10 years have more than 2 alarms with a probability of 0.0001.
    assert alarms <= 2
    assert found >= least
