"""Draws of judgements, and the estimates of their labels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from dramaturg.api.alignment.v1 import prediction_powered_pb2
from dramaturg.api.evaluation.v1.label_service_pb2 import (
    LABEL_DRAW_ACTIVE,
    LABEL_DRAW_STRATIFIED,
    LABEL_DRAW_UNIFORM,
    LabelDraw,
)
from dramaturg.service.errors import ServiceError
from gateway.runs.labels.draws import UNIFORM_SHARE, Array, Judged, choose, strata
from services.alignment.prediction_powered import Predictions, estimate_means

DRAWS = [LABEL_DRAW_UNIFORM, LABEL_DRAW_STRATIFIED, LABEL_DRAW_ACTIVE]
NAMES = ["uniform", "stratified", "active"]
POPULATION = 400
ROUNDS = 5000


def verdicts(random: np.random.Generator) -> tuple[Array, Judged]:
    """A judge that fails good texts, of which it is less confident."""
    truth = (random.random(POPULATION) < 0.85).astype(float)
    judged = (random.random(POPULATION) < np.where(truth > 0, 0.92, 0.1)).astype(float)
    confidence = np.where(judged > 0, 0.97, 0.6) + random.uniform(-0.03, 0.03, POPULATION)
    return truth, Judged(judged, confidence)


def overconfident(random: np.random.Generator) -> tuple[Array, Judged]:
    """A judge whose confidence says nothing."""
    truth = (random.random(POPULATION) < 0.7).astype(float)
    judged = np.where(random.random(POPULATION) < 0.12, 1 - truth, truth)
    return truth, Judged(judged, random.beta(8, 2, POPULATION))


def ratings(random: np.random.Generator) -> tuple[Array, Judged]:
    """A judge that is one half too kind, and less certain of low ratings."""
    truth = np.clip(np.round(random.normal(6.5, 2, POPULATION)), 1, 10)
    spread = np.where(truth < 5, 2.0, 0.6)
    judged = np.clip(np.round(truth + random.normal(0.5, 1, POPULATION) * spread), 1, 10)
    return truth, Judged(judged, np.where(spread > 1, 0.5, 0.9))


Scenario = Callable[[np.random.Generator], tuple[Array, Judged]]


@functools.cache
def mean_of(scenario: Scenario) -> float:
    random = np.random.default_rng(0)
    return float(np.mean([scenario(random)[0].mean() for _ in range(5000)]))


def estimated(
    truth: Array, judged: Judged, draw: LabelDraw.ValueType, drawn: Mapping[int, float]
) -> prediction_powered_pb2.PredictionPoweredMean:
    labels, probability = np.full(truth.size, np.nan), np.full(truth.size, np.nan)
    places = np.fromiter(drawn, int)
    labels[places], probability[places] = truth[places], np.fromiter(drawn.values(), float)
    stratum = strata(judged.values).astype(int) if draw == LABEL_DRAW_STRATIFIED else None
    values = Predictions(judged.values, labels, np.arange(truth.size), probability, stratum)
    return estimate_means({"m": values}, "", 0.95, None, lambda: None).means[0]


TABLE: Mapping[Scenario, Sequence[tuple[float, float, float]]] = {
    verdicts: [(0.945, 0.134, 120), (0.957, 0.120, 150), (0.951, 0.119, 156)],
    overconfident: [(0.950, 0.170, 117), (0.953, 0.166, 125), (0.951, 0.171, 116)],
    ratings: [(0.941, 0.598, 173), (0.950, 0.614, 169), (0.947, 0.570, 190)],
}
"""The table of docs/reference/alignment.md: coverage, mean width and mean effective labels of each draw."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", TABLE)
def test_intervals_cover_by_every_draw_and_are_as_wide_as_the_table_says(scenario: Scenario) -> None:
    found = []
    for draw in DRAWS:
        random, covered, width, effective = np.random.default_rng(8), 0, 0.0, 0.0
        for seed in range(ROUNDS):
            truth, judged = scenario(random)
            mean = estimated(truth, judged, draw, choose(judged, draw, 60, seed))
            interval = mean.prediction_powered
            assert interval.HasField("lower")
            assert interval.HasField("upper")
            assert mean.HasField("effective_labels")
            covered += interval.lower <= mean_of(scenario) <= interval.upper
            width += (interval.upper - interval.lower) / ROUNDS
            effective += mean.effective_labels / ROUNDS
        assert 0.94 <= covered / ROUNDS <= 0.96
        found.append((covered / ROUNDS, width, effective))
    assert np.array(found) == pytest.approx(np.array(TABLE[scenario]), rel=0.01, abs=0.001)


@pytest.mark.parametrize("draw", DRAWS, ids=NAMES)
def test_judgements_are_drawn_as_often_as_their_probability_says(draw: LabelDraw.ValueType) -> None:
    random = np.random.default_rng(1)
    judged = Judged(
        np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0, np.nan]), np.array([0.9, 1, np.nan, 0.5, 1, 1, 0.9])
    )
    counts, stated, rounds = np.zeros(7), np.zeros(7), 2000
    for seed in random.integers(0, 2**63, rounds):
        found = choose(judged, draw, 5, int(seed))
        assert len(found) == 5
        for place, probability in found.items():
            assert stated[place] in {0, probability}
            stated[place] = probability
            counts[place] += 1
    assert (stated > 0).all()
    assert counts / rounds == pytest.approx(stated, abs=0.05)
    assert stated.sum() == pytest.approx(5)


def test_the_strata_are_the_values_and_rare_ones_have_more() -> None:
    judged = Judged(np.array([1.0] * 900 + [0.0] * 99 + [np.nan]), np.full(1000, np.nan))
    found = choose(judged, LABEL_DRAW_STRATIFIED, 101, 7)
    sizes = [
        sum(place in some for place in found) for some in (range(900), range(900, 999), range(999, 1000))
    ]
    # The square roots of the counts are 3 to 1.
    assert sizes == [75, 25, 1]
    assert {found[place] for place in found if place < 900} == {75 / 900}
    values = np.array([0.0, 0.04, 0.26, 1.0, 1.4, 7.6])
    assert strata(values).tolist() == pytest.approx([0, 0, 0.3, 1, 1, 8])


def test_what_the_judge_is_sure_of_is_drawn_too_and_probabilities_are_at_most_one() -> None:
    judged = Judged(np.ones(1000), np.array([1.0] * 990 + [0.2] * 10))
    found = choose(judged, LABEL_DRAW_ACTIVE, 100, 3)
    # Ten judgements bear all of the uncertainty: they are certain, the others share the rest.
    assert {found.get(place) for place in range(990, 1000)} == {1.0}
    assert [found[place] for place in found if place < 990] == pytest.approx([90 / 990] * 90)
    sure = choose(Judged(np.ones(50), np.ones(50)), LABEL_DRAW_ACTIVE, 10, 3)
    assert set(sure.values()) == {0.2}
    assert UNIFORM_SHARE > 0


@pytest.mark.parametrize("draw", DRAWS, ids=NAMES)
def test_equal_seeds_draw_equally_and_no_more_than_there_are(draw: LabelDraw.ValueType) -> None:
    _, judged = verdicts(np.random.default_rng(2))
    first, again, other = (choose(judged, draw, 50, seed) for seed in (1, 1, 2))
    assert list(first.items()) == list(again.items())
    assert list(first) != list(other)
    assert list(first) != sorted(first)
    whole = choose(judged, draw, 1000, 1)
    assert sorted(whole) == list(range(POPULATION))
    assert set(whole.values()) == {1.0}
    assert not choose(Judged(np.array([]), np.array([])), draw, 10, 1)


def test_a_draw_that_the_judgements_do_not_allow_is_refused() -> None:
    unknown = Judged(np.full(5, np.nan), np.full(5, np.nan))
    for draw, needed in ((LABEL_DRAW_STRATIFIED, "value"), (LABEL_DRAW_ACTIVE, "confidence")):
        with pytest.raises(ServiceError) as raised:
            choose(unknown, draw, 3, 1)
        assert raised.value.violations[0][0] == "draw"
        assert needed in raised.value.violations[0][1]
    with pytest.raises(ServiceError, match="sample_size is 3; 2 strata need 4 items"):
        choose(verdicts(np.random.default_rng(2))[1], LABEL_DRAW_STRATIFIED, 3, 1)
