"""Messages of CorrelateScores, MeasureCalibration, MeasurePairBias, EstimateMeans and others."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from dramaturg.api.alignment.v1 import (
    bias_pb2,
    calibration_pb2,
    correlation_pb2,
    plan_pb2,
    prediction_powered_pb2,
    text_pb2,
)
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_UNSPECIFIED
from dramaturg.service.errors import Violation, invalid, invalid_fields
from dramaturg.service.threads import Checkpoint
from dramaturg.service.validation import MAX_VIOLATIONS
from services.alignment.bootstrap import Array, Index, cluster_codes, group_codes
from services.alignment.calibration import Design, Judgements
from services.alignment.codec.estimates import DEFAULT_LEVEL, decode_resampling
from services.alignment.correlation.measure import Levels, Series
from services.alignment.errors import too_large
from services.alignment.plan import Goal, cautious_error, fewest_units, units_needed
from services.alignment.prediction_powered import Predictions
from services.alignment.text.metric import TextPair
from services.alignment.text.score import TextReport

MAX_MEASURES = 200
"""The maximum number of distinct measures of a request; every two are compared."""
MAX_GROUPS = 2000
"""The maximum number of groups of a request."""
_CHUNK = 10_000


def decode_scores(
    request: correlation_pb2.CorrelateScoresRequest, checkpoint: Checkpoint
) -> tuple[Array, dict[str, Series]]:
    """Reads people's scores and those of the measures, by name.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): there are more than ``MAX_MEASURES``.
    """
    human = array("d")
    columns: dict[str, tuple[array[int], array[float]]] = {}
    for index, item in enumerate(request.items):
        if index % _CHUNK == 0:
            checkpoint()
        human.append(item.human)
        for name, score in item.scores.items():
            if name not in columns:
                columns[name] = array("q"), array("d")
                if len(columns) > MAX_MEASURES:
                    raise too_large("measures", limit=MAX_MEASURES, actual=len(columns))
            items, values = columns[name]
            items.append(index)
            values.append(score)
    measures = {
        name: Series(np.array(items, np.intp), np.array(values, np.float64))
        for name, (items, values) in columns.items()
    }
    return np.array(human, np.float64), measures


def decode_levels(request: correlation_pb2.CorrelateScoresRequest) -> Levels:
    """Reads the clusters and systems of the items."""
    systems = group_codes(item.tags.get(request.system_tag, "") for item in request.items)[1]
    return Levels(
        cluster=cluster_codes([item.tags.get(request.cluster_tag, "") for item in request.items]),
        system=systems,
        clustered=bool(request.cluster_tag),
        systems=bool(request.system_tag),
    )


def decode_groups(request: correlation_pb2.CorrelateScoresRequest) -> tuple[list[str], Index]:
    """The names of the groups, and the index of each item's.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): too many groups.
    """
    if not request.group_tag:
        return [], np.full(len(request.items), -1, np.intp)
    groups, codes = group_codes(item.tags.get(request.group_tag, "") for item in request.items)
    if len(groups) > MAX_GROUPS:
        raise too_large("groups", limit=MAX_GROUPS, actual=len(groups))
    return groups, codes


DEFAULT_BINS = 10
"""How many bins there are where the request names no number."""


def decode_judgements(
    request: calibration_pb2.MeasureCalibrationRequest, checkpoint: Checkpoint
) -> tuple[Judgements, Sequence[str], Index]:
    """Reads the judgements, the groups by name, and the group of each, -1 where it is in none."""
    confidence, correct = np.full((2, len(request.items)), math.nan)
    for index, item in enumerate(request.items):
        if index % _CHUNK == 0:
            checkpoint()
        if item.HasField("confidence"):
            confidence[index] = item.confidence
        if item.HasField("correct"):
            correct[index] = item.correct
    _, cluster = group_codes(item.tags.get(request.cluster_tag, "") for item in request.items)
    groups, group = group_codes(item.tags.get(request.group_tag, "") for item in request.items)
    return Judgements(confidence, correct, cluster), groups, group


def decode_design(request: calibration_pb2.MeasureCalibrationRequest, checkpoint: Checkpoint) -> Design:
    """Decodes the design."""
    return Design(
        bins=request.bin_count or DEFAULT_BINS,
        equal_count=request.binning == calibration_pb2.BINNING_EQUAL_COUNT,
        target=request.target_accuracy if request.HasField("target_accuracy") else None,
        clustered=bool(request.cluster_tag),
        resampling=decode_resampling(request, checkpoint),
        recalibrated=request.recalibrate,
    )


_ORDERS = 2


def check_judged_pairs(request: bias_pb2.MeasurePairBiasRequest, checkpoint: Checkpoint) -> None:
    """Checks what the judge said.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation: a pair that was judged and has a reason for not
            being so; an id with more than two judgements, or with two that are not of the same systems in
            both orders.
    """
    violations: list[Violation] = []
    by_id: defaultdict[str, list[bias_pb2.JudgedPair]] = defaultdict(list)
    for index, pair in enumerate(request.pairs):
        if index % _CHUNK == 0:
            checkpoint()
        if (
            pair.judged != bias_pb2.PREFERENCE_UNSPECIFIED
            and pair.abstain_reason != ABSTAIN_REASON_UNSPECIFIED
        ):
            violations.append(
                Violation(f"pairs[{index}].abstain_reason", "is set, though the pair was judged")
            )
        if pair.id:
            by_id[pair.id].append(pair)
            if problem := _problem(by_id[pair.id]):
                violations.append(Violation(f"pairs[{index}].id", problem))
    if violations:
        raise invalid_fields(violations[:MAX_VIOLATIONS])


def _problem(judgements: Sequence[bias_pb2.JudgedPair]) -> str:
    if len(judgements) > _ORDERS:
        return "has two judgements already, one for each order"
    systems = [(pair.first.system, pair.second.system) for pair in judgements]
    if len(systems) == _ORDERS and systems[0] != systems[1][::-1]:
        return "is that of another judgement, which is not of the same systems in the other order"
    return ""


MAX_SYSTEMS = 100
"""The maximum number of distinct systems of a request."""


def decode_predictions(
    request: prediction_powered_pb2.EstimateMeansRequest, checkpoint: Checkpoint
) -> dict[str, Predictions]:
    """Reads predictions and labels by system.

    Raises:
        ServiceError: INVALID_ARGUMENT: no item has a prediction, or none of the baseline, or some labels of a
            system have an inclusion probability and others have none. RESOURCE_EXHAUSTED
            (ERROR_REASON_TOO_LARGE): there are more than ``MAX_SYSTEMS``.
    """
    names = sorted({system for item in request.items for system in item.predictions})
    if not names:
        raise invalid("items", "have no prediction")
    if len(names) > MAX_SYSTEMS:
        raise too_large("systems", limit=MAX_SYSTEMS, actual=len(names))
    if request.baseline and request.baseline not in names:
        raise invalid("baseline", f"is {request.baseline!r}, which no item has; there are {', '.join(names)}")
    cluster = cluster_codes([item.tags.get(request.cluster_tag, "") for item in request.items])
    values = {name: np.full((3, len(request.items)), np.nan) for name in names}
    strata = {name: np.zeros(len(request.items), int) for name in names}
    numbers: dict[str, int] = {"": 0}
    for index, item in enumerate(request.items):
        if index % _CHUNK == 0:
            checkpoint()
        for name, predicted in item.predictions.items():
            values[name][0, index] = predicted
            if name in item.labels:
                values[name][1, index] = item.labels[name]
                values[name][2, index] = item.inclusion_probabilities.get(name, np.nan)
            stratum = item.strata.get(name, "")
            strata[name][index] = numbers.setdefault(stratum, len(numbers))
    return {
        name: Predictions(found[0], found[1], cluster, _probabilities(name, found), strata[name])
        for name, found in values.items()
    }


def _probabilities(system: str, values: Array) -> Array | None:
    """The probabilities of the labelled items; none: no item has one."""
    probabilities: Array = values[2]
    labelled = ~np.isnan(values[0]) & ~np.isnan(values[1])
    missing = np.isnan(probabilities) & labelled
    if missing.sum() == labelled.sum():
        return None
    if missing.any():
        place = int(np.flatnonzero(missing)[0])
        raise invalid(
            f"items[{place}].inclusion_probabilities",
            f"lacks {system!r}, which has a label; other labels of the system have a probability",
        )
    return probabilities


DEFAULT_POWER = 0.8
"""The power of a request that names none (Cohen 1988)."""
_VERDICTS = 1.0
"""The width of the scale of verdicts."""


def plan_study(request: plan_pb2.PlanStudyRequest) -> plan_pb2.PlanStudyResponse:
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
    if goal.margin is not None and goal.margin >= goal.loss:
        raise invalid("margin", f"must be less than {goal.loss:g}, the most that one unit may lose")
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
        return plan_pb2.PlanStudyResponse(undefined=reason)
    return plan_pb2.PlanStudyResponse(
        unit_count=count,
        cautious_unit_count=units_needed(cautious_error(error, units), units, goal),
        fewest_unit_count=fewest_units(goal),
        standard_error=error * (units / count) ** 0.5,
        cost=count * request.unit_cost if request.HasField("unit_cost") else None,
        seconds=count * request.unit_seconds if request.HasField("unit_seconds") else None,
    )


def decode_pairs(request: text_pb2.ScoreTextRequest) -> Sequence[TextPair]:
    return [TextPair(pair.candidate, pair.reference) for pair in request.pairs]


def encode_report(report: TextReport) -> text_pb2.ScoreTextResponse:
    return text_pb2.ScoreTextResponse(
        scores=[text_pb2.TextScores(scores=one.scores, undefined=one.undefined) for one in report.scores],
        methods=report.methods,
    )
