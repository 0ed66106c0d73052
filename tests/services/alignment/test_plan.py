"""PlanStudy: against power by simulation, and published sample sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from scipy import stats

from dramaturg.api.alignment.v1 import plan_pb2 as pb
from services.alignment.plan import Goal, cautious_error, units_needed

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub


def test_the_number_for_half_a_standard_deviation_is_cohens() -> None:
    """A paired t test with d = .5 needs 34 pairs for a power of .8 (Cohen 1988; G*Power)."""
    assert units_needed(0.1, 100, Goal(0.95, 0.8, effect=0.5)) == 34
    assert units_needed(0.1, 100, Goal(0.95, 0.95, effect=0.5)) == 54


def test_a_study_of_that_size_has_the_power() -> None:
    count = units_needed(0.05, 40, Goal(0.95, 0.8, effect=0.0, margin=0.1))
    assert count is not None
    samples = np.random.default_rng(1).normal(0, 0.05 * np.sqrt(40), (4000, count))
    lower = samples.mean(axis=1) - stats.t.ppf(0.975, count - 1) * stats.sem(samples, axis=1)
    assert (lower >= -0.1).mean() == pytest.approx(0.8, abs=0.025)


def test_an_interval_gets_the_half_width() -> None:
    count = units_needed(0.08, 50, Goal(0.95, 0.8, half_width=0.05))
    assert count is not None
    for size, wide in ((count, False), (count - 1, True)):
        half = stats.t.ppf(0.975, size - 1) * 0.08 * np.sqrt(50 / size)
        assert (half > 0.05) == wide


def test_the_cautious_deviation_is_exceeded_in_a_fifth_of_the_pilots() -> None:
    samples = np.random.default_rng(2).normal(size=(4000, 15))
    errors = [cautious_error(one, 15) for one in stats.sem(samples, axis=1)]
    assert np.mean(np.array(errors) < 1 / np.sqrt(15)) == pytest.approx(0.2, abs=0.02)


def test_a_difference_at_the_margin_cannot_be_shown() -> None:
    assert units_needed(0.1, 10, Goal(0.95, 0.8, effect=-0.05, margin=0.05)) is None


async def test_cost_and_time_over_the_service(alignment: AlignmentServiceAsyncStub) -> None:
    pilot = pb.PilotFigure(standard_error=0.1, unit_count=100)
    found = await alignment.PlanStudy(
        pb.PlanStudyRequest(difference=pilot, effect=0.5, unit_cost=0.25, unit_seconds=3)
    )
    assert (found.unit_count, found.cost, found.seconds) == (34, 8.5, 102)
    assert found.cautious_unit_count > found.unit_count
    nothing = await alignment.PlanStudy(pb.PlanStudyRequest(difference=pilot, effect=0))
    assert nothing.undefined == "the effect is 0"


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({}, "difference"),
        ({"difference": pb.PilotFigure(standard_error=1, unit_count=9)}, "effect"),
        ({"agreement": pb.PilotFigure(standard_error=1, unit_count=9), "effect": 1.0}, "half_width"),
    ],
)
async def test_incomplete_plans_are_refused(
    alignment: AlignmentServiceAsyncStub, fields: dict[str, Any], refused: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=refused):
        await alignment.PlanStudy(pb.PlanStudyRequest(**fields))
