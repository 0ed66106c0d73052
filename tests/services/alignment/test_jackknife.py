"""Intervals of the jackknife: their definition, when they are withheld, and how often they cover.

``coverage`` made the table in docs/alignment.md, with 2,000 repetitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from math import atanh, sqrt, tanh

import numpy as np
import pytest
from scipy import special, stats

from services.alignment.accuracy.metrics import policy_figures
from services.alignment.accuracy.table import Outcome
from services.alignment.bootstrap import Resampling
from services.alignment.calibration.judgements import Judgements
from services.alignment.calibration.measure import Design, calibrate
from services.alignment.correlation.levels import Levels
from services.alignment.correlation.measure import Series, correlate
from services.alignment.estimates import Estimate
from services.alignment.jackknife import Scale, pseudo_values, with_jackknife

RESAMPLING = Resampling(1, 1, 0.95, lambda: None)


def test_the_jackknife_of_a_mean_is_students_interval() -> None:
    values = np.random.default_rng(1).normal(size=30)
    deleted = (values.sum() - values) / 29
    found = with_jackknife(float(values.mean()), 30, pseudo_values(float(values.mean()), deleted, 30), 0.95)
    low, high = stats.t.interval(0.95, 29, values.mean(), stats.sem(values))
    assert (found.lower, found.upper) == pytest.approx((low, high))


def test_multiplicities_are_repeated_units() -> None:
    pseudo, weights = np.array([0.0, 1.0, 4.0]), np.array([5.0, 2.0, 1.0])
    one = with_jackknife(0.5, 8, pseudo, 0.9, multiplicities=weights)
    other = with_jackknife(0.5, 8, np.repeat(pseudo, weights.astype(int)), 0.9)
    assert (one.lower, one.upper) == pytest.approx((other.lower, other.upper))


def test_fishers_z_keeps_a_correlation_within_its_range() -> None:
    pseudo = np.array([0.9, 0.95, 0.99, 0.7, 1.2, 0.98])
    found = with_jackknife(0.95, 6, pseudo, 0.95, Scale.CORRELATION)
    error = pseudo.std(ddof=1) / sqrt(6) / (1 - 0.95**2)
    reach = stats.t.ppf(0.975, 5) * error
    assert found.lower == pytest.approx(tanh(atanh(0.95) - reach))
    assert found.upper == pytest.approx(tanh(atanh(0.95) + reach))


@pytest.mark.parametrize(
    ("value", "pseudo"),
    [
        (0.3, [0.3]),
        (0.3, [0.3, 0.3, 0.3]),
        (0.3, [0.3, np.nan, 0.2]),
        (1.0, [1.0, 0.9, 0.8]),
    ],
)
def test_intervals_are_withheld_where_nothing_is_seen_of_the_variance(
    value: float, pseudo: list[float]
) -> None:
    assert with_jackknife(value, 3, np.array(pseudo), 0.95, Scale.CORRELATION) == Estimate(value, 3)


Figures = Mapping[str, Estimate]


def labels(
    generator: np.random.Generator, items: int, clusters: int, resampling: Resampling = RESAMPLING
) -> Figures:
    """Verdicts of which one in five is wrong, in clusters with an intra-cluster correlation of .3."""
    size = items // clusters
    wrong = generator.beta(0.2 / 0.3 * 0.7, 0.8 / 0.3 * 0.7, clusters) if size > 1 else 0.2
    gold = generator.random((clusters, size)) < 0.6
    predicted = gold ^ (generator.random((clusters, size)) < np.reshape(wrong, (-1, 1)))
    outcomes = Counter(
        Outcome(str(int(one)), str(int(other)), "", str(place // size) if size > 1 else "")
        for place, (one, other) in enumerate(zip(gold.ravel(), predicted.ravel(), strict=True))
    )
    found = policy_figures(outcomes, clustered=size > 1, resampling=resampling)[0]
    return {
        "accuracy": found.accuracy,
        "balanced accuracy": found.balanced_accuracy,
        "F1": found.macro_f1,
        "kappa": found.cohen_kappa,
    }


def scores(
    generator: np.random.Generator, items: int, clusters: int, resampling: Resampling = RESAMPLING
) -> Figures:
    """Normal scores with a correlation of .6 at both levels."""
    size = items // clusters
    noise = generator.normal(size=(items, 2))
    if size > 1:
        noise = sqrt(0.7) * noise + sqrt(0.3) * np.repeat(generator.normal(size=(clusters, 2)), size, axis=0)
    human = noise[:, 0]
    measure = 0.6 * human + 0.8 * noise[:, 1]
    levels = Levels(np.arange(items) // size, np.full(items, -1), clustered=size > 1, systems=False)
    series = {"m": Series(np.arange(items), measure)}
    found = correlate(human, series, resampling, levels).measures[0]
    return {"Pearson": found.pearson, "Spearman": found.spearman, "Kendall": found.kendall}


def confidences(
    generator: np.random.Generator, items: int, clusters: int, resampling: Resampling = RESAMPLING
) -> Figures:
    """Confidences that are right on average, in clusters with a common bias."""
    size = items // clusters
    confidence = generator.beta(3, 1.5, items)
    bias = np.repeat(generator.normal(size=clusters), size) if size > 1 else 0.0
    correct = (generator.random(items) < special.expit(special.logit(confidence) + bias)).astype(np.float64)
    judgements = Judgements(confidence, correct, np.arange(items) // size)
    design = Design(10, False, None, size > 1, resampling)
    found = calibrate(judgements, [], np.full(items, -1), design)[0]
    return {"Brier": found.brier_score, "AUC": found.discrimination}


DRAWS: Mapping[str, Callable[..., Figures]] = {
    "labels": labels,
    "scores": scores,
    "confidences": confidences,
}


def coverage(kind: str, items: int, clusters: int, repetitions: int) -> dict[str, tuple[float, float]]:
    """By figure: how often the interval contains the truth, and how often there is one."""
    generator = np.random.default_rng(1)
    size = items // clusters
    large = DRAWS[kind](generator, 20_000 * size, 20_000, Resampling(0, 1, 0.95, lambda: None))
    truth = {name: found.value or 0.0 for name, found in large.items()}
    covered, present = Counter[str](), Counter[str]()
    for _ in range(repetitions):
        for name, found in DRAWS[kind](generator, items, clusters).items():
            if found.lower is not None and found.upper is not None:
                present[name] += 1
                covered[name] += found.lower <= truth[name] <= found.upper
    return {name: (covered[name] / present[name], present[name] / repetitions) for name in truth}


def test_intervals_of_few_clusters_cover() -> None:
    for kind in DRAWS:
        for covered, _ in coverage(kind, 40, 10, 60).values():
            assert covered >= 0.85


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("items", "clusters"), [(20, 20), (40, 10), (80, 20), (200, 200)])
@pytest.mark.parametrize("kind", list(DRAWS))
def test_intervals_cover_at_their_rate(kind: str, items: int, clusters: int) -> None:
    for covered, _ in coverage(kind, items, clusters, 1000).values():
        assert 0.915 <= covered <= 0.99
