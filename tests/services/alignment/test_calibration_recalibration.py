"""Recalibration: golden values of scikit-learn 1.9.1, and held-out figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from dramaturg.api.alignment.v1 import calibration_pb2 as pb
from services.alignment.calibration import fit_isotonic, fit_platt, recalibrate

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

CONFIDENCE = ((np.arange(60) * 17) % 60 + 0.5) / 60
CORRECT = ((np.arange(60) * 7) % 13 < 10 * CONFIDENCE).astype(float)
WANTED = np.array([0.1, 0.3, 0.5, 0.7, 0.9])


def test_isotonic_regression_is_that_of_scikit_learn() -> None:
    found = fit_isotonic(CONFIDENCE, CORRECT)
    assert found is not None
    expected = [0.133333, 0.285714, 0.401786, 0.625, 0.818182]
    assert found(WANTED).tolist() == pytest.approx(expected, abs=1e-6)


def test_platt_scaling_is_that_of_scikit_learn() -> None:
    """_SigmoidCalibration of the log odds."""
    found = fit_platt(CONFIDENCE, CORRECT)
    assert found is not None
    expected = [0.24289, 0.34993, 0.42691, 0.50759, 0.63365]
    assert found(WANTED).tolist() == pytest.approx(expected, abs=2e-3)


def test_an_overconfident_judge_gets_better_on_held_out_items() -> None:
    generator = np.random.default_rng(1)
    confidence = generator.uniform(0.8, 1, 2000)
    correct = (generator.random(2000) < confidence - 0.3).astype(float)
    before = float(((confidence - correct) ** 2).mean())
    alone = np.full(2000, -1)
    for one in recalibrate(confidence, correct, alone, 1, 10, 2000):
        assert one.brier_score.HasField("value")
        assert not one.brier_score.HasField("upper")
        assert one.brier_score.value < before - 0.02
        assert one.expected_calibration_error.value < 0.06
        assert one.points[0].confidence == pytest.approx(confidence.min())
        assert [at.recalibrated for at in one.points] == sorted(at.recalibrated for at in one.points)


def test_noise_is_not_learned_as_skill() -> None:
    """Answers that confidence does not explain keep the variance of the outcome on held-out items."""
    generator = np.random.default_rng(2)
    confidence, correct = generator.random(300), (generator.random(300) < 0.5).astype(float)
    for one in recalibrate(confidence, correct, np.full(300, -1), 1, 10, 300):
        assert one.brier_score.value > 0.245


def test_there_is_none_for_one_outcome_or_few_items() -> None:
    ones = np.ones(50)
    (platt, isotonic) = recalibrate(np.linspace(0, 1, 50), ones, np.full(50, -1), 1, 10, 50)
    assert "all answers are right" in platt.brier_score.undefined
    assert not isotonic.points
    (few, _) = recalibrate(np.linspace(0, 1, 50), ones, np.arange(50) % 5, 1, 10, 50)
    assert few.brier_score.undefined == "5 items or clusters are fewer than 10"


async def test_recalibration_over_the_service(alignment: AlignmentServiceAsyncStub) -> None:
    request = pb.MeasureCalibrationRequest(recalibrate=True, resample_count=1)
    for confidence, correct in zip(CONFIDENCE.tolist(), CORRECT.tolist(), strict=True):
        request.items.add(confidence=confidence, correct=bool(correct))
    request.items.add(confidence=0.5)
    (group,) = (await alignment.MeasureCalibration(request)).groups
    assert [one.method for one in group.recalibrations] == ["platt", "isotonic"]
    brier = group.recalibrations[0].brier_score
    assert (brier.count, brier.total) == (60, 61)
    assert 0 < brier.value < 1
    assert not brier.HasField("lower")
    assert len(group.recalibrations[1].points) == 60
