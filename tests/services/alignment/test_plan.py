"""PlanStudy: against power by simulation, and published sample sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dramaturg.api.alignment.v1 import plan_pb2 as pb
from services.alignment.bootstrap import Resampling
from services.alignment.comparison.paired import gaffke
from services.alignment.plan import Goal, cautious_error, fewest_units, units_needed

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub


def test_the_number_for_half_a_standard_deviation_is_cohens() -> None:
    """A paired t test with d = .5 needs 34 pairs for a power of .8 (Cohen 1988; G*Power)."""
    assert units_needed(0.1, 100, Goal(0.95, 0.8, effect=0.5)) == 34
    assert units_needed(0.1, 100, Goal(0.95, 0.95, effect=0.5)) == 54


@pytest.mark.parametrize("loss", [0.25, 0.5, 1.0])
def test_a_study_of_that_size_has_the_power_at_the_gate(loss: float) -> None:
    """Tasks of seven verdicts, of which 4 % are lost and 4 % gained."""
    generator = np.random.default_rng(1)

    def drawn(*shape: int) -> NDArray[np.float64]:
        return (generator.binomial(7, 0.04, shape) - generator.binomial(7, 0.04, shape)).astype(np.float64)

    deviation = float(drawn(100_000).std() / 7)
    count = units_needed(deviation, 1, Goal(0.95, 0.8, effect=0.0, margin=0.05, loss=loss))
    assert count is not None
    bounds = [
        gaffke(sums, np.full(count, 7.0), 7.0, loss, Resampling(0, 1, 0.95, lambda: None), 0.025)
        for sums in drawn(300, count)
    ]
    assert np.mean(np.array(bounds) >= -0.05) == pytest.approx(0.8, abs=0.07)


@pytest.mark.parametrize(("margin", "fewest"), [(0.02, 183), (0.05, 72), (0.1, 36)])
def test_units_below_the_fewest_are_never_go(margin: float, fewest: int) -> None:
    goal = Goal(0.95, 0.8, effect=0.0, margin=margin)
    assert fewest_units(goal) == fewest
    assert units_needed(1e-9, 100, goal) == fewest
    assert units_needed(0.001, 100, goal) >= fewest  # type: ignore[operator]


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


async def test_a_plan_of_the_gate_states_the_fewest_units(alignment: AlignmentServiceAsyncStub) -> None:
    pilot = pb.PilotFigure(standard_error=0.01, unit_count=100)
    request = pb.PlanStudyRequest(difference=pilot, effect=0, margin=0.05)
    whole = await alignment.PlanStudy(request)
    assert whole.fewest_unit_count == 72
    request.largest_task_loss = 0.25
    quarter = await alignment.PlanStudy(request)
    assert quarter.fewest_unit_count == 17
    assert quarter.unit_count < whole.unit_count
    request.margin = 0.25
    with pytest.raises(grpc.aio.AioRpcError, match=r"margin must be less than 0\.25"):
        await alignment.PlanStudy(request)
    request.margin = 0
    assert (await alignment.PlanStudy(request)).undefined == "the effect is not above minus the margin"
    request.effect = 0.1
    assert (await alignment.PlanStudy(request)).undefined == "the margin is 0"


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
