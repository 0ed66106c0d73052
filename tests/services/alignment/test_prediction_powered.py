"""EstimateMeans: golden values of ppi-python 0.2.3, and coverage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dramaturg.api.alignment.v1 import prediction_powered_pb2 as pb
from services.alignment.prediction_powered import Predictions, estimate_means

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub


def mean_of(
    labels: list[float],
    labelled: list[float],
    unlabelled: list[float],
    weight: float | None = None,
    cluster: int = 1,
) -> pb.PredictionPoweredMean:
    predicted = np.array([*labelled, *unlabelled])
    known = np.array([*labels, *[np.nan] * len(unlabelled)])
    values = Predictions(predicted, known, np.arange(predicted.size) // cluster)
    return estimate_means({"m": values}, "", 0.95, weight, lambda: None).means[0]


LABELS = [float(index % 3 > 0) for index in range(40)]
LABELLED = [1 - label if index % 7 == 0 else label for index, label in enumerate(LABELS)]
UNLABELLED = [float(index % 5 > 1) for index in range(500)]


@pytest.mark.parametrize(
    ("weight", "value", "half"), [(None, 0.65, 0.11119013), (1.0, 0.65, 0.12652778), (0.0, 0.65, 0.14781)]
)
def test_intervals_are_those_of_the_reference_implementation(
    weight: float | None, value: float, half: float
) -> None:
    """ppi_mean_ci has normal quantiles and divides by n."""
    found = mean_of(LABELS, LABELLED, UNLABELLED, weight).prediction_powered
    assert found.value == pytest.approx(value, abs=2e-3)
    assert found.standard_error == pytest.approx(half / 1.959964 * np.sqrt(40 / 39), rel=5e-3)
    labels, labelled, unlabelled = ([2 * one for one in some] for some in (LABELS, LABELLED, UNLABELLED))
    scaled = mean_of(labels, labelled, unlabelled, weight).prediction_powered
    assert scaled.HasField("upper")
    reach = stats.t.ppf(0.975, 39) * scaled.standard_error
    assert scaled.upper - scaled.value == pytest.approx(reach)
    # A share has Wilson's interval for the number of labels that its variance is that of.
    assert found.interval_method == "prediction-powered, wilson"
    worth = found.value * (1 - found.value) / found.standard_error**2
    z = stats.t.ppf(0.975, 39)
    assert found.HasField("lower")
    assert found.HasField("upper")
    for end in (found.lower, found.upper):
        assert abs(found.value - end) == pytest.approx(z * np.sqrt(end * (1 - end) / worth))


def test_labels_count_inversely_to_their_probabilities_as_in_the_reference_implementation() -> None:
    """ppi_mean_pointestimate with the weights 1 / p, where all items are the unlabelled ones."""
    predicted = np.array([*LABELLED, *UNLABELLED])
    labels = np.array([*LABELS, *[np.nan] * len(UNLABELLED)])
    probability = np.full(predicted.size, np.nan)
    probability[: len(LABELS)] = [0.02 + 0.02 * (index % 4) for index in range(len(LABELS))]
    values = Predictions(predicted, labels, np.arange(predicted.size), probability)
    for weight, value in ((0.0, 0.64), (0.5, 0.628), (1.0, 0.616)):
        found = estimate_means({"m": values}, "", 0.95, weight, lambda: None).means[0]
        assert found.prediction_powered.value == pytest.approx(value, abs=1e-12)
        if not weight:
            assert found.labels_alone.value == pytest.approx(value, abs=1e-12)
            assert found.labels_alone.interval_method == "weighted by inclusion probabilities, wilson"


def test_strata_have_their_shares_and_variances() -> None:
    """The sums over strata of Fisch et al. 2024, written out for scores and one weight."""
    random = np.random.default_rng(4)
    stratum = np.repeat([0, 1, 2], [600, 300, 100])
    truth = random.normal(stratum, 1.0 + stratum)
    predicted = truth + random.normal(0, 1, 1000)
    labels, probability = np.full(1000, np.nan), np.full(1000, np.nan)
    value = between = within = 0.0
    means = []
    for number, size in enumerate((20, 30, 40)):
        mine = np.flatnonzero(stratum == number)
        drawn = random.choice(mine, size, replace=False)
        labels[drawn], probability[drawn] = truth[drawn], size / mine.size
        residuals, share = truth[drawn] - 0.7 * predicted[drawn], mine.size / 1000
        value += share * (0.7 * predicted[mine].mean() + residuals.mean())
        within += share**2 * residuals.var(ddof=1) / size
        means.append(residuals.mean())
    between = np.var(0.7 * predicted + np.array(means)[stratum]) / 1000
    values = Predictions(predicted, labels, np.arange(1000), probability, stratum)
    found = estimate_means({"m": values}, "", 0.95, 0.7, lambda: None).means[0].prediction_powered
    assert found.value == pytest.approx(value)
    # The two parts of the variance share the predictions of the labelled items, a tenth of all.
    assert found.standard_error**2 == pytest.approx(within + between, rel=0.05)


def test_without_two_labels_in_a_stratum_the_probabilities_correct_alone() -> None:
    labels = np.array([1.0, 0, 1, 1, *[np.nan] * 16])
    probability = np.array([0.5, 0.5, 0.25, 0.25, *[np.nan] * 16])
    predicted = np.array([1.0, 0] * 10)
    strata = [np.repeat([0, 1], [19, 1]), np.zeros(20, int)]
    found = [
        estimate_means(
            {"m": Predictions(predicted, labels, np.arange(20), probability, one)},
            "",
            0.95,
            None,
            lambda: None,
        )
        for one in strata
    ]
    assert found[0] == found[1]
    assert found[0].means[0].labels_alone.value == pytest.approx((2 * 1 + 4 * 2) / 12)


@given(
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=12),
    st.lists(st.booleans(), min_size=2, max_size=40),
)
def test_a_share_and_its_interval_lie_between_0_and_1(
    labelled: list[tuple[bool, bool]], unlabelled: list[bool]
) -> None:
    labels, predicted = ([float(pair[place]) for pair in labelled] for place in (0, 1))
    found = mean_of(labels, predicted, [float(one) for one in unlabelled], 1.0)
    for one in (found.prediction_powered, found.labels_alone):
        assert one.HasField("value")
        if one.HasField("lower") and one.HasField("upper"):
            assert 0 <= one.lower <= one.value <= one.upper <= 1


def test_useless_predictions_get_no_weight() -> None:
    generator = np.random.default_rng(1)
    labels = generator.random(100).round().tolist()
    found = mean_of(labels, [0.5] * 100, [0.5] * 1000)
    assert found.tuning_parameter == 0
    assert found.prediction_powered.value == pytest.approx(np.mean(labels))
    assert found.effective_labels == pytest.approx(100)


def test_good_predictions_are_worth_many_labels() -> None:
    generator = np.random.default_rng(2)
    labels = (generator.random(100) < 0.6).astype(float)
    wrong = generator.random(100) < 0.05
    found = mean_of(labels.tolist(), np.where(wrong, 1 - labels, labels).tolist(), UNLABELLED * 20)
    assert found.effective_labels > 300


@pytest.mark.slow
@pytest.mark.parametrize(("labels", "share"), [(50, 0.9), (50, 0.95), (100, 0.95)])
def test_intervals_of_shares_near_an_end_cover(labels: int, share: float) -> None:
    """A judge that passes 30 % of the bad and fails 5 % of the good; Student's has .85 to .89 here."""
    generator, covered, rounds = np.random.default_rng(6), 0, 600
    for _ in range(rounds):
        truth = (generator.random(labels + 1000) < share).astype(float)
        missed = generator.random(truth.size) < np.where(truth > 0, 0.05, 0.3)
        predicted = np.where(missed, 1 - truth, truth)
        one = mean_of(truth[:labels].tolist(), predicted[:labels].tolist(), predicted[labels:].tolist())
        found = one.prediction_powered
        assert found.HasField("lower")
        assert found.HasField("upper")
        covered += found.lower <= share <= found.upper
    assert covered / rounds >= 0.92


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.85, 0.95])
def test_intervals_of_shares_of_few_unequal_clusters_cover(share: float) -> None:
    """20 labelled clusters, whose items are half alike (ICC .5); the mean alone has .76 to .88 here."""
    generator, covered, rounds = np.random.default_rng(7), 0, 500
    for _ in range(rounds):
        sizes = np.maximum(1, generator.geometric(0.15, 200))
        cluster = np.repeat(np.arange(200), sizes)
        rates = generator.beta(share, 1 - share, 200)[cluster]
        truth = (generator.random(cluster.size) < rates).astype(float)
        missed = generator.random(truth.size) < np.where(truth > 0, 0.05, 0.3)
        labels = np.where(cluster < 20, truth, np.nan)
        values = Predictions(np.where(missed, 1 - truth, truth), labels, cluster)
        found = estimate_means({"m": values}, "", 0.95, None, lambda: None).means[0].prediction_powered
        assert found.HasField("lower")
        assert found.HasField("upper")
        covered += found.lower <= share <= found.upper
    assert covered / rounds >= 0.88


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 5])
def test_intervals_cover_at_their_rate(size: int) -> None:
    generator = np.random.default_rng(3)
    covered = {"powered": 0, "alone": 0, "predictions": 0}
    rounds = 1000
    for _ in range(rounds):
        clusters = 600 // size
        shares = generator.beta(3, 2, clusters) if size > 1 else np.full(clusters, 0.6)
        truth = (generator.random((clusters, size)) < shares[:, np.newaxis]).ravel().astype(float)
        missed = generator.random(600) < np.where(truth > 0, 0.05, 0.3)
        predicted = np.where(missed, 1 - truth, truth)
        found = mean_of(truth[:100].tolist(), predicted[:100].tolist(), predicted[100:].tolist(), None, size)
        powered, alone = found.prediction_powered, found.labels_alone
        covered["powered"] += powered.lower <= 0.6 <= powered.upper
        covered["alone"] += alone.lower <= 0.6 <= alone.upper
        covered["predictions"] += abs(found.predictions_alone.value - 0.6) < 0.04
    assert 0.93 <= covered["powered"] / rounds <= 0.97
    assert 0.93 <= covered["alone"] / rounds <= 0.97
    assert covered["predictions"] / rounds < 0.2


async def test_differences_over_the_service(alignment: AlignmentServiceAsyncStub) -> None:
    request = pb.EstimateMeansRequest(baseline="old")
    for index in range(300):
        item = request.items.add(
            id=str(index), predictions={"old": index % 2, "new": 1 - (index % 4 == 0), "other": 1}
        )
        if index < 50:
            item.labels["old"], item.labels["new"] = index % 2, 1 - (index % 5 == 0)
    response = await alignment.EstimateMeans(request)
    assert [one.system for one in response.means] == ["new", "old", "other"]
    assert [one.system for one in response.differences] == ["new", "other"]
    new, other = response.differences
    assert new.labels_alone.value == pytest.approx(0.8 - 0.5)
    assert (new.prediction_powered.count, new.prediction_powered.total) == (50, 300)
    assert new.prediction_powered.lower < new.prediction_powered.value
    assert other.prediction_powered.undefined == "0 labelled items or clusters are fewer than 2"


async def test_probabilities_and_strata_over_the_service(alignment: AlignmentServiceAsyncStub) -> None:
    request = pb.EstimateMeansRequest()
    for index in range(100):
        passes = index % 10 > 0
        item = request.items.add(predictions={"a": passes}, strata={"a": str(passes)})
        # All 10 that fail are labelled, half of them wrongly failed, and 30 of 90 that pass.
        if not passes or index % 3 == 0:
            item.labels["a"] = 1 if passes else index % 20 == 0
            item.inclusion_probabilities["a"] = 1 / 3 if passes else 1
    (mean,) = (await alignment.EstimateMeans(request)).means
    assert mean.prediction_powered.value == mean.labels_alone.value == pytest.approx(0.95)
    del request.items[0].inclusion_probabilities["a"]
    with pytest.raises(grpc.aio.AioRpcError, match=r"items\[0\].inclusion_probabilities"):
        await alignment.EstimateMeans(request)
    request.items[0].inclusion_probabilities["a"] = 0
    with pytest.raises(grpc.aio.AioRpcError, match=r"items\[0\].inclusion_probabilities"):
        await alignment.EstimateMeans(request)


async def test_a_baseline_that_no_item_has_is_refused(alignment: AlignmentServiceAsyncStub) -> None:
    request = pb.EstimateMeansRequest(baseline="x")
    request.items.add(predictions={"a": 1})
    with pytest.raises(grpc.aio.AioRpcError, match="baseline"):
        await alignment.EstimateMeans(request)
