"""The figures of confusion matrices against plain ones, worked out item by item."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dramaturg.api.alignment.v1 import accuracy_pb2 as pb
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from services.alignment.accuracy.confusion import POLICIES, Confusions, Outcome
from services.alignment.accuracy.metrics import MAX_CELLS, policy_figures
from services.alignment.bootstrap import Resampling

EXCLUDED, WRONG, WORST = POLICIES
Pairs = Sequence[tuple[str, str]]
"""Right and predicted labels; an empty one is an abstention."""


def no_checkpoint() -> None:
    pass


def figures(
    pairs: Pairs,
    policy: pb.AbstentionPolicy.ValueType = EXCLUDED,
    clusters: Sequence[str] | None = None,
    resamples: int = 0,
) -> pb.PolicyFigures:
    names = [""] * len(pairs) if clusters is None else clusters
    outcomes = Counter(
        Outcome(gold, predicted, "", cluster) for (gold, predicted), cluster in zip(pairs, names, strict=True)
    )
    resampling = Resampling(resamples, 3, 0.95, no_checkpoint)
    found = policy_figures(outcomes, clustered=clusters is not None, resampling=resampling)
    return next(one for one in found if one.policy == policy)


def share(hits: int, count: int) -> float | None:
    return hits / count if count else None


def mean(values: Sequence[float | None]) -> float | None:
    return None if not values or None in values else fmean(value for value in values if value is not None)


class Plain:
    """The textbook's figures of items that were all answered."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs
        self.right = sum(gold == predicted for gold, predicted in pairs)

    def counts(self, label: str) -> tuple[int, int, int]:
        hits = sum(gold == predicted == label for gold, predicted in self.pairs)
        predicted = sum(one == label for _, one in self.pairs)
        return hits, predicted, sum(one == label for one, _ in self.pairs)

    def labels(self) -> list[str]:
        return sorted({label for pair in self.pairs for label in pair})

    def accuracy(self) -> float | None:
        return share(self.right, len(self.pairs))

    def balanced_accuracy(self) -> float | None:
        counts = [self.counts(label) for label in {gold for gold, _ in self.pairs}]
        return mean([share(hits, gold) for hits, _, gold in counts])

    def macro_precision(self) -> float | None:
        counts = [self.counts(label) for label in self.labels()]
        return mean([share(hits, predicted) for hits, predicted, _ in counts])

    def macro_f1(self) -> float | None:
        counts = [self.counts(label) for label in self.labels()]
        return mean([share(2 * hits, predicted + gold) for hits, predicted, gold in counts])

    def mean_squared_error(self) -> float | None:
        return mean([(float(gold) - float(predicted)) ** 2 for gold, predicted in self.pairs])

    def cohen_kappa(self) -> float | None:
        total = len(self.pairs)
        if not total:
            return None
        counts = [self.counts(label) for label in self.labels()]
        expected = sum(predicted * gold for _, predicted, gold in counts) / total**2
        left = 1 - expected
        return None if left < 1e-12 else (self.right / total - expected) / left


NAMES = ("accuracy", "balanced_accuracy", "macro_precision", "macro_f1", "mean_squared_error", "cohen_kappa")
label = st.sampled_from("123")
answered = st.lists(st.tuples(label, label), max_size=12)
partly = st.lists(st.tuples(st.sampled_from("12"), st.sampled_from(["1", "2", ""])), min_size=1, max_size=7)


def same(found: Estimate, expected: float | None) -> bool:
    if expected is None or not found.HasField("value"):
        return expected is None and not found.HasField("value")
    return math.isclose(found.value, expected, abs_tol=1e-9)


@given(answered, st.sampled_from(POLICIES))
def test_answered_items_have_the_textbooks_figures_under_every_policy(
    pairs: Pairs, policy: pb.AbstentionPolicy.ValueType
) -> None:
    found, plain = figures(pairs, policy), Plain(pairs)
    for name in NAMES:
        estimate = getattr(found, name)
        assert same(estimate, getattr(plain, name)()), name
        assert estimate.HasField("value") != bool(estimate.undefined)
    for one in found.labels:
        hits, predicted, gold = plain.counts(one.label)
        assert same(one.precision, share(hits, predicted))
        assert same(one.recall, share(hits, gold))
        assert same(one.f1, share(2 * hits, predicted + gold))


@given(partly)
def test_an_abstention_that_is_left_out_is_not_there(pairs: Pairs) -> None:
    found, plain = figures(pairs), Plain([pair for pair in pairs if pair[1]])
    for name in NAMES:
        if name != "mean_squared_error":  # two labels that are numbers stay so without one of them
            assert same(getattr(found, name), getattr(plain, name)()), name
    assert found.accuracy.total == len(pairs)
    assert found.accuracy.count == len(plain.pairs)


@given(partly)
def test_a_wrong_abstention_is_a_label_of_its_own(pairs: Pairs) -> None:
    found, plain = figures(pairs, WRONG), Plain([(gold, predicted or "none") for gold, predicted in pairs])
    assert same(found.accuracy, plain.accuracy())
    assert same(found.balanced_accuracy, plain.balanced_accuracy())
    assert same(found.cohen_kappa, plain.cohen_kappa())


@given(partly)
@settings(max_examples=60)
def test_the_worst_case_is_the_worst_of_all_answers_there_could_have_been(pairs: Pairs) -> None:
    if len({label for pair in pairs for label in pair} - {""}) < 2:
        return
    gaps = [index for index, (_, predicted) in enumerate(pairs) if not predicted]
    filled = []
    for answers in product("12", repeat=len(gaps)):
        by_gap = dict(zip(gaps, answers, strict=True))
        filled.append(
            Plain([(gold, by_gap.get(index, predicted)) for index, (gold, predicted) in enumerate(pairs)])
        )
    found = figures(pairs, WORST)
    worst: Mapping[str, Callable[..., float]] = dict.fromkeys(NAMES, min) | {"mean_squared_error": max}
    for name in ("accuracy", "balanced_accuracy", "macro_f1", "mean_squared_error", "cohen_kappa"):
        defined = [value for one in filled if (value := getattr(one, name)()) is not None]
        assert same(getattr(found, name), worst[name](defined)), name


def test_policies_of_a_worked_example() -> None:
    """Of six good ones four are found, one missed, one not judged; of four bad ones two, one, one."""
    pairs = [("P", "P")] * 4 + [("P", "F"), ("P", "")] + [("F", "F")] * 2 + [("F", "P"), ("F", "")]
    excluded, wrong, worst = (figures(pairs, policy) for policy in POLICIES)
    assert [one.accuracy.value for one in (excluded, wrong, worst)] == [6 / 8, 6 / 10, 6 / 10]
    assert [one.mean_squared_error.value for one in (excluded, wrong, worst)] == [0.25, 0.4, 0.4]
    failing = [one.labels[0] for one in (excluded, wrong, worst)]
    assert [one.precision.value for one in failing] == [2 / 3, 2 / 3, 2 / 4]
    assert [one.recall.value for one in failing] == [2 / 3, 2 / 4, 2 / 4]
    assert [one.f1.value for one in failing] == pytest.approx([4 / 6, 4 / 7, 4 / 8])
    assert [(one.recall.count, one.recall.total) for one in failing] == [(3, 4), (4, 4), (4, 4)]


def test_labels_that_are_no_numbers_have_no_squared_error() -> None:
    found = figures([("a", "a"), ("b", "c")])
    assert found.mean_squared_error.undefined == "labels are not numbers"


def test_how_wrong_an_abstention_is_is_not_made_up() -> None:
    wrong, worst = (figures([("1", "2"), ("3", ""), ("2", "2")], policy) for policy in (WRONG, WORST))
    assert wrong.mean_squared_error.undefined == "how far a wrong answer is from the right one is not said"
    assert worst.mean_squared_error.value == pytest.approx((1 + 4 + 0) / 3)


def test_very_many_labels_are_not_measured_one_by_one() -> None:
    pairs = [(f"label {index}", f"label {index + 1}") for index in range(math.isqrt(MAX_CELLS) + 1)]
    found = figures(pairs)
    assert "are too many" in found.macro_f1.undefined
    assert not found.labels


def test_clusters_widen_intervals_and_leave_figures() -> None:
    pairs = [
        (gold, gold if index % 8 < 6 else "2" if gold == "1" else "1") for index, gold in enumerate("12" * 80)
    ]
    clusters = [str(index // 8 % 4 + 4 * (index % 8 < 6)) for index in range(160)]
    alone, together = figures(pairs, resamples=400), figures(pairs, clusters=clusters, resamples=400)
    for name in ("accuracy", "macro_f1", "cohen_kappa"):
        one, other = getattr(alone, name), getattr(together, name)
        assert one.value == pytest.approx(other.value)
        assert other.upper - other.lower > 1.5 * (one.upper - one.lower)


def test_items_that_are_clusters_of_one_are_as_good_as_independent() -> None:
    pairs = [("1", "1")] * 40 + [("2", "1")] * 10
    alone, together = figures(pairs), figures(pairs, clusters=[str(index) for index in range(50)])
    assert together.accuracy.lower == pytest.approx(alone.accuracy.lower, abs=0.01)
    assert together.accuracy.upper == pytest.approx(alone.accuracy.upper, abs=0.01)


def test_equal_items_give_equal_intervals_whatever_their_order() -> None:
    pairs = [("1", "1"), ("2", "1"), ("2", "2"), ("1", ""), ("1", "1")] * 6
    clusters = [str(index % 7) for index in range(30)]
    backwards = figures(pairs[::-1], clusters=clusters[::-1], resamples=100)
    assert figures(pairs, clusters=clusters, resamples=100) == backwards


def test_the_least_kappa_is_found_with_several_labels() -> None:
    generator = np.random.default_rng(5)
    for _ in range(30):
        answers = generator.integers(0, 4, size=(3, 3)).astype(float)
        abstained = generator.integers(0, 3, size=3)
        matrices = np.concatenate([answers, abstained[:, np.newaxis]], axis=1)[np.newaxis]
        kappas = []
        for chosen in product(range(3), repeat=int(abstained.sum())):
            filled = answers.copy()
            for gold, predicted in zip(np.repeat(np.arange(3), abstained), chosen, strict=True):
                filled[gold, predicted] += 1
            total = filled.sum()
            expected = float(filled.sum(axis=0) @ filled.sum(axis=1)) / total**2
            if total and expected < 1:
                kappas.append((np.trace(filled) / total - expected) / (1 - expected))
        assert Confusions(matrices, WORST).kappa()[0] == pytest.approx(min(kappas))
