"""MeasureCalibration: bins, errors, discrimination, and the threshold for abstaining."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dramaturg.api.alignment.v1 import calibration_pb2 as pb
from services.alignment.calibration import Judgements, calibrate, find_threshold
from services.alignment.codec.scores import decode_design, decode_judgements

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

Item = tuple[float | None, bool | None]


def no_checkpoint() -> None:
    pass


def request(
    items: Sequence[Item], clusters: Sequence[str] = (), **options: Any
) -> pb.MeasureCalibrationRequest:
    message = pb.MeasureCalibrationRequest(cluster_tag="task" if clusters else "", **options)
    for index, (confidence, correct) in enumerate(items):
        tags = {"task": clusters[index]} if clusters else {}
        message.items.add(confidence=confidence, correct=correct, tags=tags)
    return message


def calibrated(items: Sequence[Item], clusters: Sequence[str] = (), **options: Any) -> pb.CalibrationGroup:
    message = request(items, clusters, **options)
    judgements, groups, group = decode_judgements(message, no_checkpoint)
    return calibrate(judgements, groups, group, decode_design(message, no_checkpoint)).groups[0]


items = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 20).map(lambda one: one / 20)),
        st.sampled_from([True, False, None]),
    ),
    min_size=1,
    max_size=25,
)


@given(items)
def test_figures_agree_with_their_definitions(some: list[Item]) -> None:
    found = calibrated(some)
    used = [(confidence, right) for confidence, right in some if confidence is not None and right is not None]
    assert found.item_count == len(some)
    if not used:
        assert found.expected_calibration_error.undefined == "no answered item has a confidence"
        return
    bins: dict[int, list[tuple[float, bool]]] = {}
    for confidence, right in used:
        bins.setdefault(max(0, math.ceil(round(confidence * 10, 9)) - 1), []).append((confidence, right))
    gaps = {
        place: abs(np.mean([right for _, right in inside]) - np.mean([one for one, _ in inside]))
        for place, inside in bins.items()
    }
    expected = sum(len(bins[place]) * gap for place, gap in gaps.items()) / len(used)
    assert found.expected_calibration_error.value == pytest.approx(expected, abs=1e-9)
    assert found.maximum_calibration_error.value == pytest.approx(max(gaps.values()), abs=1e-9)
    assert found.brier_score.value == pytest.approx(np.mean([(one - right) ** 2 for one, right in used]))
    assert [one.accuracy.count for one in found.bins] == [len(bins[place]) for place in sorted(bins)]
    right_ones = [one for one, right in used if right]
    wrong_ones = [one for one, right in used if not right]
    if right_ones and wrong_ones:
        wins = [(a > b) + (a == b) / 2 for a in right_ones for b in wrong_ones]
        assert found.discrimination.value == pytest.approx(np.mean(wins))
    else:
        assert found.discrimination.undefined == "all answers are right, or all are wrong"


def test_a_calibrated_judge_and_one_that_is_too_sure() -> None:
    random = Random(7)
    honest: list[Item] = []
    sure: list[Item] = []
    for _ in range(4000):
        confidence = random.choice([0.55, 0.65, 0.75, 0.85, 0.95])
        right = random.random() < confidence
        honest.append((confidence, right))
        sure.append((min(1.0, confidence + 0.2), right))
    assert calibrated(honest).expected_calibration_error.value < 0.03
    found = calibrated(sure, resample_count=200)
    assert found.expected_calibration_error.value == pytest.approx(0.17, abs=0.03)
    # Resamples of the error are biased like the error itself.
    assert not found.expected_calibration_error.HasField("lower")
    assert found.brier_score.HasField("lower")


def test_bins_of_equal_count() -> None:
    some: list[Item] = [(0.9 + index / 1000, index % 3 > 0) for index in range(100)]
    width = calibrated(some)
    count = calibrated(some, binning=pb.BINNING_EQUAL_COUNT, bin_count=4)
    assert [one.accuracy.count for one in width.bins] == [1, 99]
    assert [one.accuracy.count for one in count.bins] == [25, 25, 25, 25]


def confident(random: Random, count: int) -> list[Item]:
    """Answers that are right with the probability 1/2 + confidence / 2."""
    drawn = [round(random.random(), 2) for _ in range(count)]
    return [(confidence, random.random() < 0.5 + confidence / 2) for confidence in drawn]


@pytest.mark.parametrize("size", [1, 4])
def test_the_threshold_is_the_lowest_that_is_shown_to_reach_the_accuracy(size: int) -> None:
    clusters = [str(index // size) for index in range(4000)] if size > 1 else ()
    threshold = calibrated(confident(Random(4), 4000), clusters, target_accuracy=0.9).threshold
    # The answers above c are right in 1/2 + (1 + c) / 4 of the cases, which is 0.9 at 0.6.
    assert threshold.HasField("threshold")
    assert 0.6 <= threshold.threshold <= 0.85
    assert threshold.held_out_accuracy.value == pytest.approx(0.925, abs=0.025)
    assert not threshold.held_out_accuracy.HasField("lower")
    assert threshold.held_out_coverage.value == pytest.approx(1 - threshold.threshold, abs=0.04)
    assert threshold.held_out_accuracy.total == 2000


@pytest.mark.slow
@pytest.mark.parametrize(("count", "size"), [(400, 1), (2000, 1), (4000, 8)])
def test_the_threshold_misses_the_accuracy_as_rarely_as_the_level_says(count: int, size: int) -> None:
    """The answers of a cluster are right or wrong together, with the probability 1/2 + confidence / 2."""
    generator, missed, found = np.random.default_rng(8), 0, 0
    for seed in range(400):
        confidence = np.repeat(np.round(generator.random(count // size), 2), size)
        correct = np.repeat(generator.random(count // size), size) < 0.5 + confidence / 2
        judgements = Judgements(confidence, correct.astype(np.float64), np.arange(count) // size)
        threshold = find_threshold(judgements, 0.85, 0.9, seed, clustered=size > 1)
        found += threshold.HasField("threshold")
        # The confidences are rounded: those from 0.395 on have the accuracy.
        missed += threshold.HasField("threshold") and threshold.threshold < 0.395
    assert missed / 400 <= 0.1 + 3 * (0.09 / 400) ** 0.5
    assert found > 100


def test_a_threshold_that_no_confidence_reaches() -> None:
    threshold = calibrated([(0.9, index % 2 == 0) for index in range(40)], target_accuracy=0.99).threshold
    assert not threshold.HasField("threshold")
    assert threshold.undefined == "no confidence is shown to reach an accuracy of 0.99 by 20 answers"


def test_too_few_right_answers_show_nothing() -> None:
    """29 right answers exclude an accuracy below .9 at .95; 28 do not."""
    few, enough = (calibrated([(0.9, True)] * count, target_accuracy=0.9).threshold for count in (56, 58))
    assert not few.HasField("threshold")
    assert enough.threshold == 0.9


def test_clusters_go_into_one_half_and_widen_intervals() -> None:
    some: list[Item] = [(0.8, index // 10 % 4 > 0) for index in range(400)]
    clusters = [str(index // 10) for index in range(400)]
    alone, together = calibrated(some), calibrated(some, clusters, target_accuracy=0.5)
    assert alone.accuracy.HasField("lower")
    assert together.accuracy.HasField("lower")
    assert together.accuracy.lower < alone.accuracy.lower - 0.05
    assert together.HasField("threshold")
    assert together.threshold.chosen_accuracy.count == 200


@given(items, st.randoms())
@settings(max_examples=20)
def test_order_does_not_matter(some: list[Item], random: Random) -> None:
    shuffled = random.sample(some, len(some))
    options: Any = {"resample_count": 20, "target_accuracy": 0.7}
    assert calibrated(shuffled, **options) == calibrated(some, **options)


async def test_calibration_over_the_service(alignment: AlignmentServiceAsyncStub) -> None:
    message = request([(0.9, True), (0.8, False), (None, True), (0.2, None)], resample_count=50)
    message.group_tag = "judge"
    message.items[0].tags["judge"] = "a"
    whole, single = (await alignment.MeasureCalibration(message)).groups
    assert (whole.item_count, whole.accuracy.count, whole.accuracy.total) == (4, 2, 4)
    assert whole.expected_calibration_error.value == pytest.approx((0.1 + 0.8) / 2)
    assert not whole.HasField("threshold")
    assert (single.group, single.item_count) == ("a", 1)


async def test_confidences_are_shares(alignment: AlignmentServiceAsyncStub) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=r"items\[0\].confidence"):
        await alignment.MeasureCalibration(request([(1.5, True)]))
