"""The alternative annotator test: its figures by their definitions, and how often it passes who is worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from dramaturg.api.alignment.v1 import agreement_pb2 as pb
from services.alignment.agreement.annotations import AnnotatedItem, Annotations, Category
from services.alignment.agreement.measure import may_replace

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

Labels = Sequence[Mapping[str, Category]]


def replaced(
    labels: Labels,
    epsilon: float = 0.2,
    distance: pb.LabelDistance.ValueType = pb.LABEL_DISTANCE_NOMINAL,
    cluster: int = 0,
) -> pb.JudgeReplacement:
    items = [
        AnnotatedItem(one, cluster=str(place // cluster) if cluster else "")
        for place, one in enumerate(labels)
    ]
    return may_replace(Annotations(items).of_group(), distance, "judge", epsilon, 0.95)


def drawn(
    seed: int, items: int, judge: float, people: float = 0.8, count: int = 3, missing: float = 0.0
) -> Labels:
    """Labels of three kinds that are right with a probability."""
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(items):
        right = int(generator.integers(3))
        one: dict[str, Category] = {}
        for name, accuracy in [("judge", judge), *((f"p{place}", people) for place in range(count))]:
            if generator.random() >= missing:
                wrong = (right + int(generator.integers(1, 3))) % 3
                one[name] = (str(right if generator.random() < accuracy else wrong),)
        found.append(one)
    return found


def test_figures_are_those_of_the_definition() -> None:
    labels = drawn(1, 80, 0.8, missing=0.1)
    found = replaced(labels)
    p_values = []
    for one in found.annotators:
        judge_wins, holds = [], []
        for item in labels:
            others = [item[name] for name in ("p0", "p1", "p2") if name in item and name != one.annotator]
            if others and "judge" in item and one.annotator in item:
                own, other = (
                    np.mean([item[name] == label for label in others]) for name in (one.annotator, "judge")
                )
                judge_wins.append(float(other >= own))
                holds.append(float(own >= other))
        assert one.item_count == one.unit_count == len(judge_wins)
        assert (one.judge_advantage, one.annotator_advantage) == pytest.approx(
            (np.mean(judge_wins), np.mean(holds))
        )
        test = stats.ttest_1samp(np.array(holds) - judge_wins, 0.2, alternative="less")
        assert one.p_value == pytest.approx(test.pvalue)
        p_values.append(test.pvalue)
    expected = stats.false_discovery_control(p_values, method="by")
    assert [one.adjusted_p_value for one in found.annotators] == pytest.approx(expected)
    assert found.winning_rate == pytest.approx(np.mean(expected <= 0.05))
    assert found.average_advantage == pytest.approx(
        np.mean([one.judge_advantage for one in found.annotators])
    )


def test_a_good_judge_passes_and_a_bad_one_does_not() -> None:
    good, bad = replaced(drawn(2, 200, 0.9)), replaced(drawn(2, 200, 0.4))
    assert good.passed
    assert good.winning_rate == 1.0
    assert not bad.passed
    assert bad.average_advantage < good.average_advantage


def test_numbers_are_compared_by_squared_differences() -> None:
    """The judge is always nearest to the others, and never equal to any."""
    labels: Labels = [{"p0": 1.0, "p1": 3.0, "p2": 5.0, "judge": 3.5} for _ in range(40)]
    found = {one.annotator: one for one in replaced(labels, distance=pb.LABEL_DISTANCE_INTERVAL).annotators}
    assert found["p0"].judge_advantage == 1.0
    assert found["p0"].annotator_advantage == 0.0
    assert found["p1"].judge_advantage == 0.0


def test_sets_are_compared_by_their_overlap() -> None:
    labels: Labels = [{"p0": ("x",), "p1": ("a", "b"), "p2": ("a", "b"), "judge": ("a",)} for _ in range(40)]
    first = next(
        one for one in replaced(labels, distance=pb.LABEL_DISTANCE_MASI).annotators if one.annotator == "p0"
    )
    assert (first.judge_advantage, first.annotator_advantage) == (1.0, 0.0)


def test_equal_labels_need_items_too() -> None:
    """(1 - epsilon)^n where nothing differs: .8^30 with three people."""
    same: Labels = [dict.fromkeys(("judge", "p0", "p1", "p2"), (str(place % 2),)) for place in range(30)]
    found = replaced(same)
    assert found.annotators[0].p_value == pytest.approx(0.8**30)
    assert found.passed
    # Five clusters are fewer than 30.
    assert "no annotator shares 30 items" in replaced(same, cluster=6).undefined


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (drawn(1, 40, 0.8, count=2), "2 annotators beside judge are fewer than 3"),
        ([{"p0": ("x",), "p1": ("x",), "p2": ("x",)}], "judge labelled no item"),
        (drawn(1, 29, 0.8), "no annotator shares 30 items with judge and another one"),
    ],
)
def test_what_has_no_answer_says_why(labels: Labels, reason: str) -> None:
    found = replaced(labels)
    assert found.undefined == reason
    assert not found.HasField("winning_rate")
    assert not found.passed


def test_a_person_with_few_items_is_not_won() -> None:
    labels = [dict(one) for one in drawn(3, 60, 0.95)]
    for one in labels[20:]:
        one.pop("p2", None)
    found = replaced(labels)
    last = next(one for one in found.annotators if one.annotator == "p2")
    assert not last.HasField("p_value")
    assert found.winning_rate == pytest.approx(2 / 3)


async def test_the_service_tests_the_judge_that_is_named(alignment: AlignmentServiceAsyncStub) -> None:
    request = pb.MeasureAgreementRequest(judge="judge", epsilon=0.3)
    for place, one in enumerate(drawn(4, 120, 0.85)):
        item = request.items.add(id=str(place))
        for name, label in one.items():
            assert isinstance(label, tuple)
            item.annotations.add(annotator=name, labels=label)
    found = (await alignment.MeasureAgreement(request)).groups[0].replacement
    assert (found.passed, found.winning_rate, found.epsilon) == (True, 1.0, 0.3)
    assert [one.annotator for one in found.annotators] == ["p0", "p1", "p2"]
    request.judge = ""
    assert not (await alignment.MeasureAgreement(request)).groups[0].HasField("replacement")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_judge_that_is_worse_by_epsilon_rarely_passes() -> None:
    """Scenarios are drawn: people, items, accuracies, missing labels; epsilon is the true loss."""
    rates = []
    for seed in range(12):
        generator = np.random.default_rng(seed)
        people, judge = float(generator.uniform(0.7, 0.95)), float(generator.uniform(0.35, 0.65))
        count, items = int(generator.choice([3, 5])), int(generator.choice([40, 80]))
        missing = float(generator.choice([0.0, 0.1]))
        many = replaced(drawn(99, 6000, judge, people, count, missing), 0.0).annotators
        epsilon = float(np.mean([one.annotator_advantage - one.judge_advantage for one in many]))
        passed = [
            replaced(drawn(1000 * seed + place, items, judge, people, count, missing), epsilon).passed
            for place in range(60)
        ]
        rates.append(float(np.mean(passed)))
    assert np.mean(rates) <= 0.05 + 3 * (0.05 * 0.95 / (60 * len(rates))) ** 0.5
