"""How often intervals contain the truth.

``coverage`` made the tables in docs/reference/alignment.md, with 600 repetitions or more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import sqrt

import numpy as np
import pytest
from scipy import special

from dramaturg.api.alignment.v1 import agreement_pb2, bias_pb2
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from services.alignment.accuracy.confusion import Outcome
from services.alignment.accuracy.metrics import policy_figures
from services.alignment.agreement.annotations import AnnotatedItem, Annotations, Category
from services.alignment.agreement.measure import measure as measure_agreement
from services.alignment.bias import measure as measure_bias
from services.alignment.bootstrap import Resampling
from services.alignment.calibration import Design, Judgements, calibrate
from services.alignment.correlation.measure import Levels, Series, correlate
from services.alignment.prediction_powered import Predictions, estimate_means
from services.alignment.preference import Pairs
from services.alignment.preference import measure as measure_preferences
from services.alignment.ranking import Means, Rows

RESAMPLING = Resampling(1, 1, 0.95, lambda: None)

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
        "macro precision": found.macro_precision,
        "precision": found.labels[1].precision,
        "recall": found.labels[1].recall,
        "squared error": found.mean_squared_error,
        "F1 of a label": found.labels[1].f1,
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
    other = 0.3 * human + sqrt(1 - 0.09) * generator.normal(size=items)
    levels = Levels(np.arange(items) // size, np.full(items, -1), clustered=size > 1, systems=False)
    series = {"m": Series(np.arange(items), measure), "n": Series(np.arange(items), other)}
    found = correlate(human, series, resampling, levels)
    one = found.measures[0]
    return {
        "Pearson": one.pearson,
        "Spearman": one.spearman,
        "Kendall": one.kendall,
        "difference of taus": found.differences[0].kendall_difference,
    }


def ratings(
    generator: np.random.Generator, items: int, clusters: int, resampling: Resampling = RESAMPLING
) -> Figures:
    """Ratings from 1 to 4 of three annotators, who see an item's quality with noise."""
    size = items // clusters
    quality = generator.normal(size=items)
    if size > 1:
        quality = sqrt(0.7) * quality + sqrt(0.3) * np.repeat(generator.normal(size=clusters), size)
    seen = quality[:, np.newaxis] + 0.7 * generator.normal(size=(items, 3))
    rated = (np.digitize(seen, [-0.8, 0.0, 0.8]) + 1).tolist()
    numbers = annotated([dict(zip("abc", map(float, row), strict=True)) for row in rated], size)
    ordinal, interval = (
        measure_agreement(numbers, distance, grouped=False, resampling=resampling)[0]
        for distance in (agreement_pb2.LABEL_DISTANCE_ORDINAL, agreement_pb2.LABEL_DISTANCE_INTERVAL)
    )
    names = annotated([dict(zip("abc", ((str(one),) for one in row), strict=True)) for row in rated], size)
    nominal = measure_agreement(
        names, agreement_pb2.LABEL_DISTANCE_NOMINAL, grouped=False, resampling=resampling
    )[0]
    return {
        "alpha, nominal": nominal.krippendorff_alpha,
        "alpha, ordinal": ordinal.krippendorff_alpha,
        "alpha, interval": interval.krippendorff_alpha,
        "Fleiss": nominal.fleiss_kappa,
        "AC1": nominal.gwet_ac1,
        "observed agreement": nominal.observed_agreement,
        "Cohen, of two annotators": nominal.pairs[0].cohen_kappa,
        "linear kappa": interval.pairs[0].linear_kappa,
        "quadratic kappa": interval.pairs[0].quadratic_kappa,
        "ICC(1,1)": interval.icc_one_way,
        "ICC(2,1)": interval.icc_agreement,
        "ICC(3,1)": interval.icc_consistency,
    }


def annotated(rows: Sequence[Mapping[str, Category]], size: int) -> Annotations:
    return Annotations(
        [AnnotatedItem(row, cluster=str(place // size) if size > 1 else "") for place, row in enumerate(rows)]
    )


def levels_of_summaries(
    generator: np.random.Generator, items: int, clusters: int, resampling: Resampling = RESAMPLING
) -> Figures:
    """Summaries of documents by ten systems, which differ."""
    human = generator.normal(size=(clusters, 10)) + np.linspace(-1, 1, 10)
    human += generator.normal(size=(clusters, 1))
    measure = 0.6 * human + 0.8 * generator.normal(size=human.shape)
    documents, systems = np.divmod(np.arange(human.size), 10)
    levels = Levels(documents, systems, clustered=True, systems=True)
    series = {"m": Series(np.arange(human.size), measure.ravel())}
    (found,) = correlate(human.ravel(), series, resampling, levels).measures
    return {
        f"{name.title()}, summaries": getattr(found.summary_level, name)
        for name in ("pearson", "spearman", "kendall")
    }


def preferences(
    generator: np.random.Generator, items: int, clusters: int, resampling: Resampling = RESAMPLING
) -> Figures:
    """Pairs of two systems, several of a prompt; longer texts are preferred."""
    size = items // clusters
    prompt = np.arange(items) // size
    longer = generator.normal(0.3, 1, items)
    odds = 0.5 + np.tanh(longer) + np.repeat(generator.normal(size=clusters), size) * (size > 1)
    preference = (generator.random(items) < special.expit(odds)).astype(np.float64)
    zeros = np.zeros(items, np.intp)
    pairs = Pairs(["a", "b"], prompt, zeros, zeros + 1, preference, longer, np.full(items, np.nan))
    (rate,) = measure_preferences(pairs, "b", resampling, adjust_position=False).win_rates
    return {"win rate": rate.win_rate, "length-controlled": rate.length_controlled_win_rate}


def position(
    generator: np.random.Generator, items: int, clusters: int, resampling: Resampling = RESAMPLING
) -> Figures:
    """Pairs of three systems in random order; the first text has an advantage."""
    size = items // clusters
    strengths = np.array([0.0, 0.5, 1.0])
    first = generator.integers(0, 3, items)
    second = (first + generator.integers(1, 3, items)) % 3
    odds = strengths[first] - strengths[second] + 0.6
    preference = (generator.random(items) < special.expit(odds)).astype(np.float64)
    unknown = np.full(items, np.nan)
    pairs = Pairs(["a", "b", "c"], np.arange(items) // size, first, second, preference, unknown, unknown)
    resampling = replace(resampling, resamples=199 if resampling.resamples else 0)
    found = measure_preferences(pairs, "a", resampling, adjust_position=True)
    return {"position effect": found.position_effect}


def side(first: bool) -> bias_pb2.Preference.ValueType:
    return bias_pb2.PREFERENCE_FIRST if first else bias_pb2.PREFERENCE_SECOND


def biases(
    generator: np.random.Generator, items: int, clusters: int, resampling: Resampling = RESAMPLING
) -> Figures:
    """A judge and people on the same pairs; the judge prefers longer texts."""
    size = items // clusters
    taste = np.repeat(generator.normal(size=clusters), size) * (size > 1)
    human = generator.random(items) < special.expit(0.4 + taste)
    judge = np.where(generator.random(items) < 0.6, human, generator.random(items) < 0.8)
    longer, shorter = bias_pb2.JudgedText(system="a", length=2), bias_pb2.JudgedText(system="b", length=1)
    pairs = [
        bias_pb2.JudgedPair(
            id=str(place // size), first=longer, second=shorter, judged=side(one), human=side(other)
        )
        for place, (one, other) in enumerate(zip(judge, human, strict=True))
    ]
    found = measure_bias(pairs, "", "", resampling.level, lambda: None).groups[0].length
    return {"share of a judge": found.judge_share, "excess over people": found.excess}


def means(
    generator: np.random.Generator, items: int, clusters: int, resampling: Resampling = RESAMPLING
) -> Figures:
    """Scores of two systems, and a fifth of the items with labels beside predictions."""
    size = items // clusters
    shared = np.repeat(generator.normal(size=clusters), size) * sqrt(0.3) * (size > 1)
    score = generator.normal(size=items) + shared
    cluster = np.arange(items) // size
    zeros = np.zeros(items, np.intp)
    rows = Rows(cluster, zeros, zeros, score[:, np.newaxis])
    label = score + 0.5 * generator.normal(size=items)
    old = label - 0.2 + 0.5 * generator.normal(size=items)
    known = np.where(cluster % 2 == 0, 1.0, np.nan)
    systems = {
        "new": Predictions(score, label * known, cluster),
        "old": Predictions(score - 0.1, old * known, cluster),
    }
    found = estimate_means(systems, "old", resampling.level, None, lambda: None)
    return {
        "mean of a system": Means(rows, 0, 1, resampling).estimate(0).encode(),
        "mean from labels and predictions": found.means[0].prediction_powered,
        "mean from labels alone": found.means[0].labels_alone,
        "difference from labels and predictions": found.differences[0].prediction_powered,
    }


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
    found = calibrate(judgements, [], np.full(items, -1), design).groups[0]
    return {"Brier": found.brier_score, "AUC": found.discrimination}


DRAWS: Mapping[str, Callable[..., Figures]] = {
    "labels": labels,
    "scores": scores,
    "confidences": confidences,
    "annotations": ratings,
    "levels": levels_of_summaries,
    "preferences": preferences,
    "position": position,
    "biases": biases,
    "means": means,
}


def coverage(
    draw: Callable[..., Figures], items: int, clusters: int, repetitions: int, of_truth: int = 8000
) -> dict[str, tuple[float, float]]:
    """By figure: how often the interval contains the truth, and how often there is one.

    The truth is the value of ``of_truth`` clusters.
    """
    generator = np.random.default_rng(1)
    size = items // clusters
    large = draw(generator, of_truth * size, of_truth, Resampling(0, 1, 0.95, lambda: None))
    drawn = [draw(generator, items, clusters) for _ in range(repetitions)]
    rates = {}
    for name, figure in large.items():
        found = [one[name] for one in drawn if one[name].HasField("lower") and one[name].HasField("upper")]
        covered = sum(one.lower <= figure.value <= one.upper for one in found)
        rates[name] = (covered / max(1, len(found)), len(found) / repetitions)
    return rates


def least_covered(repetitions: int) -> float:
    """Three standard errors of the simulation below .93."""
    return 0.93 - 3 * sqrt(0.93 * 0.07 / repetitions)


FIRST_KINDS = ("labels", "scores", "confidences")


def test_intervals_of_few_clusters_cover() -> None:
    for kind in FIRST_KINDS:
        for covered, _ in coverage(DRAWS[kind], 40, 10, 60).values():
            assert covered >= 0.85


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("items", "clusters"), [(20, 20), (40, 10), (80, 20), (200, 200)])
@pytest.mark.parametrize("kind", FIRST_KINDS)
def test_intervals_cover_at_their_rate(kind: str, items: int, clusters: int) -> None:
    # Correlations take a second of the processor for each ten draws at eighty items.
    repetitions = 120 if kind == "scores" else 300
    for name, (covered, _) in coverage(DRAWS[kind], items, clusters, repetitions).items():
        assert least_covered(repetitions) <= covered < 1, name


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "items", "clusters"),
    # Summaries of a document are a cluster, whatever the number of items.
    [("levels", 10, 10), *product(sorted({*DRAWS} - {*FIRST_KINDS, "levels"}), (20, 80), (20,))],
)
def test_further_intervals_cover(kind: str, items: int, clusters: int) -> None:
    for name, (covered, _) in coverage(DRAWS[kind], items, clusters, 200).items():
        assert covered >= least_covered(200), name
