"""How often the intervals of tables contain the truth: ranks, bins, differences, means of results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

from dramaturg.api.alignment.v1 import accuracy_pb2, bias_pb2
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.results.means import mean_of_sums
from services.alignment import calibration as calibration
from services.alignment.accuracy import metrics
from services.alignment.bias import measure as measure_bias
from services.alignment.bootstrap import Resampling
from services.alignment.calibration import Judgements, find_threshold
from services.alignment.comparison import model
from services.alignment.comparison.compare import PairedValues
from services.alignment.preference import Pairs
from services.alignment.preference import measure as measure_preferences
from services.alignment.ranking import Design, Rows, rank
from tests.dramaturg.results.test_leaderboard import sums
from tests.services.alignment.test_estimates_coverage import RESAMPLING, Figures, coverage, side

SYSTEMS = 8


def shared(generator: np.random.Generator, clusters: int, size: int) -> NDArray[np.float64]:
    """A normal value of each cluster, by item; 0 where clusters are items."""
    return np.repeat(generator.normal(size=clusters), size) * (size > 1)


def ranks(
    generator: np.random.Generator, items: int, clusters: int, resampling: Resampling = RESAMPLING
) -> Figures:
    """Eight systems on the same items, which are as difficult for all."""
    size = items // clusters
    difficulty = generator.normal(size=items) + shared(generator, clusters, size)
    own = np.repeat(generator.normal(size=(clusters, SYSTEMS)), size, axis=0) * 0.5 * (size > 1)
    scores = difficulty[:, np.newaxis] + own + 0.25 * np.arange(SYSTEMS)
    scores = (scores + generator.normal(size=scores.shape)).reshape(-1, 1)
    codes, numbers = np.divmod(np.arange(scores.shape[0]), SYSTEMS)
    rows = Rows(codes // size, numbers, np.zeros(codes.size, np.intp), scores)
    resamples = 400 if resampling.resamples else 0
    names = [f"s{number}" for number in range(SYSTEMS)]
    design = Design(rows, names, ["one"], {}, baseline="s7")
    (found,) = rank(design, replace(resampling, resamples=resamples)).groups
    by_name = {one.system: one for one in found.methods[0].systems}
    return {
        **{
            f"rank {name}": Estimate(value=one.rank, count=items, lower=one.rank_lower, upper=one.rank_upper)
            for name, one in by_name.items()
        },
        "mean of a ranked system": by_name["s3"].mean,
        "difference to the first": by_name["s3"].difference,
    }


def bins(
    generator: np.random.Generator, items: int, clusters: int, resampling: Resampling = RESAMPLING
) -> Figures:
    """Confidences that are too high, in clusters with a common bias."""
    size = items // clusters
    confidence = generator.beta(2, 1, items)
    odds = 0.7 * special.logit(confidence) - 0.3 + shared(generator, clusters, size)
    correct = (generator.random(items) < special.expit(odds)).astype(np.float64)
    judgements = Judgements(confidence, correct, np.arange(items) // size)
    design = calibration.Design(2, False, None, size > 1, resampling)
    found = calibration.calibrate(judgements, [], np.full(items, -1), design).groups[0]
    return {
        "accuracy of the lower bin": found.bins[0].accuracy,
        "accuracy of the upper bin": found.bins[-1].accuracy,
        "mean confidence": found.mean_confidence,
    }


def ratings(
    generator: np.random.Generator, items: int, clusters: int, resampling: Resampling = RESAMPLING
) -> Figures:
    """Pairs of three systems."""
    size = items // clusters
    strengths = np.array([0.0, 0.5, 1.0])
    first = generator.integers(0, 3, items)
    second = (first + generator.integers(1, 3, items)) % 3
    odds = strengths[first] - strengths[second] + 0.7 * shared(generator, clusters, size)
    preference = (generator.random(items) < special.expit(odds)).astype(np.float64)
    unknown = np.full(items, np.nan)
    pairs = Pairs(["a", "b", "c"], np.arange(items) // size, first, second, preference, unknown, unknown)
    resampling = replace(resampling, resamples=199 if resampling.resamples else 0)
    found = measure_preferences(pairs, "a", resampling, adjust_position=False).ratings
    return {f"Elo of {one.system}": one.elo for one in found if one.system != "a"}


def differences(
    generator: np.random.Generator, items: int, clusters: int, resampling: Resampling = RESAMPLING
) -> Figures:
    """Two systems on the same items: verdicts, and ratings from 1 to 5."""
    size = items // clusters
    ease = generator.normal(size=items) + shared(generator, clusters, size)
    change = 0.7 * shared(generator, clusters, size)
    verdicts = [
        (odds + generator.logistic(size=items) > 0).astype(np.float64)
        for odds in (ease + 0.5, ease + change + 0.2)
    ]
    rated = [
        np.clip(np.round(3 + shift + generator.normal(size=items)), 1, 5)
        for shift in (0.7 * ease, 0.7 * ease + 0.5 * change - 0.2)
    ]
    found: dict[str, Estimate] = {}
    for name, (old, new) in (("verdicts", verdicts), ("ratings", rated)):
        design = model.Design(
            baseline="old",
            verdicts=name == "verdicts",
            clustered=size > 1,
            lowest=0.0 if name == "verdicts" else 1.0,
            highest=1.0 if name == "verdicts" else 5.0,
            margin=0.05,
            power=0.8,
            permutations=9,
            policy=accuracy_pb2.ABSTENTION_POLICY_EXCLUDED,
            every_group=False,
            resampling=resampling,
        )
        sizes = np.full(clusters, float(size))
        pairs = PairedValues(old, new, design, np.arange(items) // size, sizes, float(size))
        found[f"difference of {name}"] = pairs.difference(0.95).encode()
        found[f"mean of {name}"] = pairs.mean(old, 0.95).encode()
    return found


def pair_judges(
    generator: np.random.Generator, items: int, clusters: int, resampling: Resampling = RESAMPLING
) -> Figures:
    """A judge that prefers the first text, over pairs in both orders."""
    size = items // clusters
    taste = shared(generator, clusters, size)
    text = bias_pb2.JudgedText(system="a")
    pairs = [
        bias_pb2.JudgedPair(
            id=str(place // size), first=text, second=text, judged=side(one), human=side(other)
        )
        for place, (one, other) in enumerate(
            zip(
                generator.random(items) < special.expit(0.5 + taste),
                generator.random(items) < special.expit(taste),
                strict=True,
            )
        )
    ]
    orders = []
    for place in range(items):
        better = generator.random() < 0.5
        for order in (True, False):
            said = (better == order) if generator.random() < 0.7 else True
            orders.append(bias_pb2.JudgedPair(id=str(place), first=text, second=text, judged=side(said)))
    first = measure_bias(pairs, "", "", resampling.level, lambda: None).groups[0]
    second = measure_bias(orders, "", "", resampling.level, lambda: None).groups[0]
    return {
        "share of the first text": first.first_share,
        "people's share of the first text": first.position.human_share,
        "consistent share": second.swaps.consistent_share,
    }


def results(
    generator: np.random.Generator, items: int, clusters: int, resampling: Resampling = RESAMPLING
) -> Figures:
    """Means of results by sample: F1 of graphs, of which a third is 1, ratings, and edit distances."""
    size = items // clusters
    quality = sqrt(0.7) * generator.normal(size=items) + sqrt(0.3) * shared(generator, clusters, size)
    ends = {
        "F1 of edges": (np.clip(special.expit(quality + 1) * 1.2, 0, 1), 0.0, 1.0),
        "rating from 1 to 10": (np.clip(np.round(7 + 2 * quality), 1, 10), 1.0, 10.0),
        "edit distance": (generator.poisson(np.exp(0.5 - quality)).astype(np.float64), 0.0, np.inf),
        "pass rate": ((quality > -0.8).astype(np.float64), 0.0, 1.0),
    }
    found = {}
    for name, (values, lowest, highest) in ends.items():
        mean = mean_of_sums(sums(values.reshape(clusters, size).tolist()), lowest, highest)
        found[name] = Estimate(value=mean.value, count=items, lower=mean.lower, upper=mean.upper)
    return found


def answers(
    generator: np.random.Generator, items: int, clusters: int, resampling: Resampling = RESAMPLING
) -> Figures:
    """Verdicts and ratings by three criteria, wrong at .1, .2 and .4; one in ten is an abstention."""
    size = items // clusters
    criterion = np.tile(np.arange(size) % 3, clusters) if size > 1 else np.arange(items) % 3
    odds = special.logit(np.array([0.1, 0.2, 0.4])[criterion]) + shared(generator, clusters, size)
    wrong = generator.random(items) < special.expit(odds)
    verdict = generator.random(items) < 0.6
    rating = generator.integers(1, 6, items)
    other = np.clip(rating + wrong * generator.choice([-2, -1, 1, 2], items, p=[0.1, 0.4, 0.4, 0.1]), 1, 5)
    abstained = generator.random(items) < 0.1
    found: dict[str, Estimate] = {}
    for kind, right, given in (
        ("verdicts", verdict.astype(int), (verdict ^ wrong).astype(int)),
        ("ratings", rating, other),
    ):
        rows = zip(right, given, abstained, criterion, np.arange(items) // size, strict=True)
        counted = Counter(
            metrics.Item(
                str(one), "" if silent else str(two), "UNSURE" if silent else "", (str(by), str(group))
            )
            for one, two, silent, by, group in rows
        )
        tags, policy = ["criterion", "task"], accuracy_pb2.ABSTENTION_POLICY_EXCLUDED
        clustered = "task" if size > 1 else ""
        design = metrics.Design(counted, tags, [], [], policy, "criterion", resampling, clustered)
        (one,) = metrics.measure(design)
        found[f"macro mean squared error of {kind}"] = one.policies[0].macro_mean_squared_error
    return found | {
        "accuracy": one.accuracy,
        "accuracy when answered": one.accuracy_when_answered,
        "accuracy with abstentions wrong": one.accuracy_abstentions_wrong,
    }


DRAWS: Mapping[str, Callable[..., Figures]] = {
    "answers": answers,
    "ranks": ranks,
    "bins": bins,
    "ratings": ratings,
    "differences": differences,
    "pair judges": pair_judges,
    "results": results,
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("items", "clusters"), [(20, 20), (100, 100), (40, 10), (80, 20)])
@pytest.mark.parametrize("kind", DRAWS)
def test_intervals_of_tables_cover(kind: str, items: int, clusters: int) -> None:
    for name, (covered, present) in coverage(DRAWS[kind], items, clusters, 300).items():
        # Three standard errors of the simulation below .93.
        assert covered >= 0.886, name
        assert present >= 0.7, name


def threshold_coverage(items: int, clusters: int, repetitions: int) -> dict[str, tuple[float, float]]:
    """As ``coverage``, of a threshold that is chosen on one half: the truth is that of this threshold."""
    generator = np.random.default_rng(1)
    size = items // clusters

    def draw(count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        confidence = np.round(generator.beta(2, 1, count * size), 2)
        odds = special.logit(np.clip(confidence, 0.01, 0.99)) + shared(generator, count, size)
        return confidence, (generator.random(count * size) < special.expit(odds)).astype(np.float64)

    confidence, correct = draw(400_000 // size)
    counts = np.bincount(np.rint(confidence * 100).astype(int), minlength=101)[::-1].cumsum()[::-1]
    covered = list[bool]()
    for _ in range(repetitions):
        confidence, correct = draw(clusters)
        judgements = Judgements(confidence, correct, np.arange(items) // size)
        seed = int(generator.integers(1 << 30))
        found = find_threshold(judgements, 0.6, 0.95, seed, clustered=size > 1)
        if not found.HasField("threshold"):
            continue
        kept = round(found.threshold * 100)
        one = found.held_out_coverage
        if one.HasField("lower") and one.HasField("upper"):
            covered.append(one.lower <= counts[kept] / counts[0] <= one.upper)
    return {"held-out coverage": (float(np.mean(covered or [False])), len(covered) / repetitions)}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("items", "clusters"), [(40, 40), (100, 100), (200, 50), (400, 100)])
def test_intervals_of_thresholds_cover(items: int, clusters: int) -> None:
    for name, (covered, present) in threshold_coverage(items, clusters, 600).items():
        assert covered >= 0.9, name
        # Few answers rarely show that any confidence reaches the accuracy.
        assert present >= 0.2, name
