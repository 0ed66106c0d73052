from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from dramaturg.api.alignment.v1 import correlation_pb2 as pb
from dramaturg.service.threads import StoppedError
from services.alignment.bootstrap import Resampling
from services.alignment.correlation import coefficients
from services.alignment.correlation.coefficients import ScorePairs, dominated, influences, williams_test
from services.alignment.correlation.measure import Levels, Series, correlate

Array = NDArray[np.float64]


def no_checkpoint() -> None:
    pass


def correlations(
    human: Sequence[float], resamples: int = 0, seed: int = 1, **measures: Sequence[float | None]
) -> pb.CorrelateScoresResponse:
    series = {}
    for name, scores in measures.items():
        present = [index for index, score in enumerate(scores) if score is not None]
        series[name] = Series(
            np.array(present, np.intp), np.array([scores[index] for index in present], np.float64)
        )
    return correlate(np.array(human, np.float64), series, Resampling(resamples, seed, 0.95, no_checkpoint))


def drawn(count: int, *, rounded: bool, seed: int = 7) -> tuple[Array, Array, Array]:
    generator = np.random.default_rng(seed)
    human = generator.normal(size=count)
    columns = (human, human + generator.normal(size=count), human + 2 * generator.normal(size=count))
    first, second, third = (np.round(column) if rounded else column for column in columns)
    return first, second, third


scores = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=25)


@given(scores)
def test_coefficients_agree_with_scipy(pairs: list[tuple[int, int]]) -> None:
    human, measure = ([float(value) for value in column] for column in zip(*pairs, strict=True))
    (found,) = correlations(human, m=measure).measures
    if len(set(human)) == 1 or len(set(measure)) == 1:
        for estimate in (found.pearson, found.spearman, found.kendall):
            assert not estimate.HasField("value")
            assert "are equal" in estimate.undefined
        return
    assert found.pearson.value == pytest.approx(stats.pearsonr(human, measure).statistic, abs=1e-9)
    assert found.spearman.value == pytest.approx(stats.spearmanr(human, measure).statistic, abs=1e-9)
    assert found.kendall.value == pytest.approx(stats.kendalltau(human, measure).statistic, abs=1e-9)
    assert found.pearson.count == len(pairs)


@given(scores, st.data())
def test_a_weight_stands_for_a_repeated_item(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(0, 3), min_size=len(pairs), max_size=len(pairs)))
    first, second = np.array(pairs, np.float64).T.copy()
    sample = ScorePairs(first, second)
    chosen = np.repeat(np.arange(len(pairs)), weights)
    x, y = first[chosen], second[chosen]
    undefined = len(set(x)) < 2 or len(set(y)) < 2
    references: Sequence[Any] = (stats.pearsonr, stats.spearmanr, stats.kendalltau)
    for figure, reference in zip((sample.pearson, sample.spearman, sample.kendall), references, strict=True):
        if not chosen.size:
            continue
        (value,) = figure(np.array([weights], np.float64))
        assert math.isnan(value) if undefined else value == pytest.approx(reference(x, y)[0], abs=1e-9)


@pytest.mark.parametrize("rounded", [False, True])
def test_both_ways_to_count_concordance_agree(monkeypatch: pytest.MonkeyPatch, rounded: bool) -> None:
    human, measure, _ = drawn(60, rounded=rounded)
    weights = np.random.default_rng(1).multinomial(60, np.full(60, 1 / 60), 30).astype(np.float64)
    dense = ScorePairs(human, measure).kendall(weights)
    monkeypatch.setattr(coefficients, "MAX_DENSE_ROWS", 1)
    assert ScorePairs(human, measure).kendall(weights) == pytest.approx(dense, abs=1e-12)


@pytest.mark.parametrize(
    ("r12", "r13", "r23", "count", "t", "p"),
    [
        # One-sided p of the example that the metrics tasks' own implementation prints.
        (0.65, 0.55, 0.30, 50, 0.816078, 2 * 0.20928617286753592),
        (0.50, 0.32, 0.65, 50, 1.6964, 0.0964),
        (0.59, 0.31, 0.71, 30, 2.4019, 0.0235),
        (0.80, 0.72, 0.89, 26, 1.3607, 0.1868),
    ],
)
def test_williams_test_of_worked_examples(
    r12: float, r13: float, r23: float, count: int, t: float, p: float
) -> None:
    found = williams_test(r12, r13, r23, count)
    assert found is not None
    assert found.t == pytest.approx(t, abs=5e-5)
    assert found.p == pytest.approx(p, abs=1e-12 if p > 0.2 else 5e-5)
    turned = williams_test(r13, r12, r23, count)
    assert turned is not None
    assert turned.t == pytest.approx(-found.t)
    assert turned.p == pytest.approx(found.p)


def test_williams_test_takes_a_measure_that_goes_against_people_as_turned_round() -> None:
    assert williams_test(-0.5, 0.32, -0.65, 50) == williams_test(0.5, 0.32, 0.65, 50)
    assert williams_test(-0.5, -0.32, 0.65, 50) == williams_test(0.5, 0.32, 0.65, 50)


def test_williams_test_is_undefined_for_measures_that_determine_each_other() -> None:
    human, measure, _ = drawn(20, rounded=False)
    (difference,) = correlations(human.tolist(), a=measure.tolist(), b=(2 * measure + 1).tolist()).differences
    assert difference.williams_t.undefined == "a and b determine each other"
    assert not difference.HasField("williams_p")
    assert difference.kendall_difference.value == pytest.approx(0.0)


def test_differences_go_by_name_and_rest_on_shared_items() -> None:
    human, first, second = drawn(30, rounded=False)
    partial: list[float | None] = [None if index % 3 == 0 else score for index, score in enumerate(second)]
    found = correlations(human.tolist(), resamples=200, b=first.tolist(), a=partial, c=second.tolist())
    assert [one.measure for one in found.measures] == ["a", "b", "c"]
    assert [one.pearson.count for one in found.measures] == [20, 30, 30]
    pairs = {(one.first_measure, one.second_measure): one for one in found.differences}
    assert list(pairs) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [one.williams_t.count for one in pairs.values()] == [20, 20, 30]
    shared = [index for index in range(30) if index % 3]
    taus = [stats.kendalltau(human[shared], column[shared]).statistic for column in (second, first)]
    assert pairs["a", "b"].kendall_difference.value == pytest.approx(taus[0] - taus[1])
    r12, r13, r23 = (
        stats.pearsonr(x[shared], y[shared]).statistic
        for x, y in ((human, second), (human, first), (second, first))
    )
    expected = williams_test(r12, r13, r23, 20)
    assert expected is not None
    assert pairs["a", "b"].williams_t.value == pytest.approx(expected.t)
    assert pairs["a", "b"].williams_p == pytest.approx(expected.p)


def test_a_difference_is_resampled_in_pairs() -> None:
    """A measure and a barely changed copy of it differ by little in every resample, not only on average."""
    human, first, _ = drawn(80, rounded=False)
    nudged = first.copy()
    nudged[0] += 0.05
    found = correlations(human.tolist(), resamples=500, a=first.tolist(), b=nudged.tolist())
    alone, difference = found.measures[0].kendall, found.differences[0].kendall_difference
    assert alone.upper - alone.lower > 0.1
    assert difference.upper - difference.lower < 0.01


@pytest.mark.parametrize(
    ("human", "measure", "reason"),
    [
        ([1.0, 2.0], [2.0, 1.0], "2 items are fewer than 3"),
        ([1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0], "all human scores are equal"),
        ([1.0, 2.0, 3.0, 4.0], [0.1, 0.1, 0.1, 0.1], "all scores of m are equal"),
        ([0.1, 0.1, 0.1], [0.1, 0.1, 0.1], "all human scores are equal"),
    ],
)
def test_what_is_not_defined_says_why(human: list[float], measure: list[float], reason: str) -> None:
    found = correlations(human, resamples=100, m=measure, other=measure)
    for one in found.measures[:1]:
        assert {one.pearson.undefined, one.spearman.undefined, one.kendall.undefined} == {reason}
        assert not one.pearson.HasField("value")
        assert not one.pearson.HasField("lower")
    assert found.differences[0].williams_t.undefined == reason
    assert found.differences[0].kendall_difference.undefined == reason


def test_three_items_are_too_few_for_williams() -> None:
    (difference,) = correlations([1, 2, 3], a=[1, 3, 2], b=[3, 1, 2]).differences
    assert difference.williams_t.undefined == "3 items are fewer than 4"
    assert difference.kendall_difference.HasField("value")


@settings(max_examples=30)
@given(scores, st.randoms())
def test_order_does_not_matter(pairs: list[tuple[int, int]], random: Random) -> None:
    shuffled = random.sample(pairs, len(pairs))
    first, second = (
        correlations([h for h, _ in one], resamples=30, a=[m for _, m in one], b=[-m * h for h, m in one])
        for one in (pairs, shuffled)
    )
    assert first == second


@given(scores)
def test_figures_are_bounded(pairs: list[tuple[int, int]]) -> None:
    found = correlations(
        [h for h, _ in pairs],
        resamples=20,
        m=[m for _, m in pairs],
        n=[h - m if (h + m) % 2 else None for h, m in pairs],
    )
    for one in found.measures:
        for estimate in (one.pearson, one.spearman, one.kendall):
            for value in (estimate.value, estimate.lower, estimate.upper):
                assert -1 <= value <= 1
            assert estimate.HasField("value") != bool(estimate.undefined)


def test_large_offsets_do_not_wash_out_the_correlation() -> None:
    human, measure, _ = drawn(50, rounded=False)
    (plain,) = correlations(human.tolist(), m=measure.tolist()).measures
    (moved,) = correlations((human + 1e6).tolist(), m=(measure * 1e-6 - 1.0).tolist()).measures
    assert moved.pearson.value == pytest.approx(plain.pearson.value, abs=1e-6)
    assert moved.kendall.value == plain.kendall.value


def test_intervals_agree_with_an_independent_bootstrap() -> None:
    human, measure, _ = drawn(60, rounded=True)
    (found,) = correlations(human.tolist(), resamples=8000, m=measure.tolist()).measures
    references: Mapping[str, Any] = {
        "pearson": stats.pearsonr,
        "spearman": stats.spearmanr,
        "kendall": stats.kendalltau,
    }
    generator = np.random.default_rng(99)
    for name, reference in references.items():
        picks = generator.integers(60, size=(3000, 60))
        values = [reference(human[pick], measure[pick])[0] for pick in picks]
        estimate = getattr(found, name)
        assert (estimate.lower, estimate.upper) == pytest.approx(
            np.quantile(values, [0.025, 0.975]), abs=0.04
        )


def test_the_work_can_be_ended_between_chunks() -> None:
    human, measure, _ = drawn(300, rounded=False)
    passed = 0

    def checkpoint() -> None:
        nonlocal passed
        passed += 1
        if passed > 3:
            raise StoppedError

    series = {name: Series(np.arange(300), measure) for name in "abc"}
    with pytest.raises(StoppedError):
        correlate(human, series, Resampling(20_000, 1, 0.95, checkpoint))
    assert passed == 4


@pytest.mark.parametrize("rounded", [False, True])
def test_the_influence_of_items_is_that_of_deleting_them(rounded: bool) -> None:
    human, measure, _ = drawn(250, rounded=rounded)
    values, found = influences(human, measure)
    references: list[Any] = [stats.pearsonr, stats.spearmanr, stats.kendalltau]
    for place, reference in enumerate(references):
        whole = reference(human, measure)[0]
        assert values[place] == pytest.approx(whole, abs=1e-12)
        deleted = [
            reference(np.delete(human, item), np.delete(measure, item))[0] for item in range(human.size)
        ]
        pseudo = (human.size - 1) * (whole - np.array(deleted))
        assert found[:, place] == pytest.approx(pseudo, abs=0.1)
        assert found[:, place].std() == pytest.approx(pseudo.std(), rel=0.02)


def test_counts_of_a_quadrant_are_those_of_its_definition() -> None:
    generator = np.random.default_rng(3)
    first, second = generator.integers(0, 9, (2, 200))
    ordered = np.sort(first)
    prefix = np.searchsorted(ordered, first, side="left")
    found = dominated(prefix, first, second, second)
    expected = [int(((first < x) & (second < y)).sum()) for x, y in zip(first, second, strict=True)]
    assert found.tolist() == expected


def test_clusters_widen_intervals() -> None:
    generator = np.random.default_rng(5)
    document = np.repeat(generator.normal(size=40), 10)
    human = document + 0.5 * generator.normal(size=400)
    measure = document + 0.5 * generator.normal(size=400)
    series = {"m": Series(np.arange(400), measure)}
    cluster = np.repeat(np.arange(40), 10)
    systems = np.tile(np.arange(10), 40)
    alone = correlate(human, series, Resampling(1, 1, 0.95, lambda: None)).measures[0]
    levels = Levels(cluster, systems, clustered=True, systems=True)
    together = correlate(human, series, Resampling(1, 1, 0.95, lambda: None), levels).measures[0]
    assert together.pearson.value == alone.pearson.value
    widths = [one.pearson.upper - one.pearson.lower for one in (together, alone)]
    assert widths[0] > 1.3 * widths[1]
    within = [stats.kendalltau(human[cluster == one], measure[cluster == one])[0] for one in range(40)]
    assert together.summary_level.kendall.value == pytest.approx(np.mean(within))
    low, high = stats.t.interval(0.95, 39, np.mean(within), stats.sem(within))
    assert (together.summary_level.kendall.lower, together.summary_level.kendall.upper) == pytest.approx(
        (low, high)
    )
    means = [[column[systems == one].mean() for one in range(10)] for column in (human, measure)]
    assert together.system_level.pearson.value == pytest.approx(stats.pearsonr(*means)[0])
    assert not together.system_level.pearson.HasField("lower")
