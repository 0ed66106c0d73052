"""Messages of PlanStudy."""

from __future__ import annotations

from dramaturg.api.alignment.v1 import plan_pb2 as pb
from dramaturg.service.errors import invalid
from services.alignment.codec.estimates import DEFAULT_LEVEL
from services.alignment.plan import Goal, cautious_error, fewest_units, units_needed

DEFAULT_POWER = 0.8
"""The power of a request that names none (Cohen 1988)."""
_VERDICTS = 1.0
"""The width of the scale of verdicts."""


def plan_study(request: pb.PlanStudyRequest) -> pb.PlanStudyResponse:
    """Plans.

    Raises:
        ServiceError: INVALID_ARGUMENT: no pilot, or the effect or half width that it needs is missing.
    """
    kind = request.WhichOneof("pilot")
    if kind is None:
        raise invalid("difference", "or agreement has to be set")
    needed = "effect" if kind == "difference" else "half_width"
    if not request.HasField("effect" if kind == "difference" else "half_width"):
        raise invalid(needed, f"has to be set for the pilot's {kind}")
    goal = Goal(
        level=request.confidence_level if request.HasField("confidence_level") else DEFAULT_LEVEL,
        power=request.power if request.HasField("power") else DEFAULT_POWER,
        effect=request.effect if kind == "difference" else None,
        margin=request.margin if kind == "difference" and request.HasField("margin") else None,
        half_width=request.half_width if kind == "agreement" else None,
        loss=request.largest_task_loss if request.HasField("largest_task_loss") else _VERDICTS,
    )
    pilot = request.difference if kind == "difference" else request.agreement
    error, units = pilot.standard_error, pilot.unit_count
    count = units_needed(error, units, goal)
    if count is None:
        reason = (
            "the effect is not above minus the margin"
            if goal.distance <= 0 and goal.margin is not None
            else "the margin is 0"
            if goal.margin == 0
            else "the effect is 0"
            if goal.distance <= 0
            else "more than 1,000,000,000 are needed"
        )
        return pb.PlanStudyResponse(undefined=reason)
    return pb.PlanStudyResponse(
        unit_count=count,
        cautious_unit_count=units_needed(cautious_error(error, units), units, goal),
        fewest_unit_count=fewest_units(goal),
        standard_error=error * (units / count) ** 0.5,
        cost=count * request.unit_cost if request.HasField("unit_cost") else None,
        seconds=count * request.unit_seconds if request.HasField("unit_seconds") else None,
    )
