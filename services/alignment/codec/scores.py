"""Messages of CorrelateScores, MeasureCalibration, MeasurePairBias, EstimateMeans and others."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence

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
from services.alignment.bias import JudgedPair, PairBias, PreferenceExcess, Side, Text
from services.alignment.bootstrap import Array, Index, cluster_codes, group_codes
from services.alignment.calibration import Calibration, Design, Judgements, Threshold
from services.alignment.codec.estimates import DEFAULT_LEVEL, decode_resampling, encode_estimate
from services.alignment.correlation.measure import (
    CorrelationDifference,
    Correlations,
    Levels,
    MeasureCorrelation,
    Series,
)
from services.alignment.errors import too_large
from services.alignment.estimates import Estimate
from services.alignment.plan import Goal, cautious_error, fewest_units, units_needed
from services.alignment.prediction_powered import Means, PredictionPoweredMean, Predictions
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


def encode_correlations(
    whole: Correlations, groups: Mapping[str, Correlations]
) -> correlation_pb2.CorrelateScoresResponse:
    return correlation_pb2.CorrelateScoresResponse(
        measures=[_encode_measure(one) for one in whole.measures],
        differences=[encode_difference(one) for one in whole.differences],
        groups=[
            correlation_pb2.CorrelationGroup(
                group=name,
                measures=[_encode_measure(one) for one in found.measures],
                differences=[encode_difference(one) for one in found.differences],
            )
            for name, found in groups.items()
        ],
    )


def _encode_measure(one: MeasureCorrelation) -> correlation_pb2.MeasureCorrelation:
    return correlation_pb2.MeasureCorrelation(
        measure=one.measure,
        pearson=encode_estimate(one.pearson),
        spearman=encode_estimate(one.spearman),
        kendall=encode_estimate(one.kendall),
        summary_level=_encode_level(one.summary_level),
        system_level=_encode_level(one.system_level),
    )


def _encode_level(estimates: Sequence[Estimate]) -> correlation_pb2.LevelCorrelation | None:
    if not estimates:
        return None
    pearson, spearman, kendall = (encode_estimate(one) for one in estimates)
    return correlation_pb2.LevelCorrelation(pearson=pearson, spearman=spearman, kendall=kendall)


def encode_difference(difference: CorrelationDifference) -> correlation_pb2.CorrelationDifference:
    """Encodes the difference of two correlations."""
    return correlation_pb2.CorrelationDifference(
        first_measure=difference.first,
        second_measure=difference.second,
        williams_t=encode_estimate(difference.williams_t),
        williams_p=difference.williams_p,
        kendall_difference=encode_estimate(difference.kendall_difference),
        holm_p=difference.holm_p,
        false_discovery_p=difference.false_discovery_p,
    )


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


def encode_calibrations(groups: Sequence[Calibration]) -> calibration_pb2.MeasureCalibrationResponse:
    return calibration_pb2.MeasureCalibrationResponse(groups=[_encode_calibration(group) for group in groups])


def _encode_calibration(group: Calibration) -> calibration_pb2.CalibrationGroup:
    message = calibration_pb2.CalibrationGroup(
        group=group.group,
        item_count=group.items,
        bins=[
            calibration_pb2.ReliabilityBin(
                lower=one.lower,
                upper=one.upper,
                mean_confidence=one.mean_confidence,
                accuracy=encode_estimate(one.accuracy),
            )
            for one in group.bins
        ],
        expected_calibration_error=encode_estimate(group.expected_error),
        maximum_calibration_error=encode_estimate(group.maximum_error),
        brier_score=encode_estimate(group.brier_score),
        discrimination=encode_estimate(group.discrimination),
        accuracy=encode_estimate(group.accuracy),
        mean_confidence=encode_estimate(group.mean_confidence),
        recalibrations=[
            calibration_pb2.Recalibration(
                method=one.method,
                brier_score=encode_estimate(one.brier_score),
                expected_calibration_error=encode_estimate(one.expected_error),
                points=[
                    calibration_pb2.CalibrationPoint(confidence=before, recalibrated=after)
                    for before, after in one.points
                ],
            )
            for one in group.recalibrations
        ],
    )
    if group.threshold is not None:
        message.threshold.CopyFrom(_encode_threshold(group.threshold))
    return message


def _encode_threshold(threshold: Threshold) -> calibration_pb2.AbstentionThreshold:
    return calibration_pb2.AbstentionThreshold(
        target_accuracy=threshold.target,
        threshold=threshold.threshold,
        undefined=threshold.undefined,
        chosen_accuracy=encode_estimate(threshold.chosen_accuracy),
        held_out_accuracy=encode_estimate(threshold.held_out_accuracy),
        held_out_coverage=encode_estimate(threshold.held_out_coverage),
    )


_SIDES = {
    bias_pb2.PREFERENCE_FIRST: Side.FIRST,
    bias_pb2.PREFERENCE_SECOND: Side.SECOND,
    bias_pb2.PREFERENCE_TIE: Side.TIE,
}
_ORDERS = 2


def decode_judged_pairs(request: bias_pb2.MeasurePairBiasRequest, checkpoint: Checkpoint) -> list[JudgedPair]:
    """Reads what the judge said.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation: a pair that was judged and has a reason for not
            being so; an id with more than two judgements, or with two that are not of the same systems in
            both orders.
    """
    violations: list[Violation] = []
    pairs: list[JudgedPair] = []
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
        pairs.append(
            JudgedPair(
                id=pair.id,
                first=_text(pair.first),
                second=_text(pair.second),
                judged=_SIDES.get(pair.judged),
                human=_SIDES.get(pair.human),
                group=pair.tags.get(request.group_tag, ""),
            )
        )
    if violations:
        raise invalid_fields(violations[:MAX_VIOLATIONS])
    return pairs


def encode_biases(groups: Sequence[PairBias]) -> bias_pb2.MeasurePairBiasResponse:
    return bias_pb2.MeasurePairBiasResponse(groups=[_encode_bias(group) for group in groups])


def _problem(judgements: Sequence[bias_pb2.JudgedPair]) -> str:
    if len(judgements) > _ORDERS:
        return "has two judgements already, one for each order"
    systems = [(pair.first.system, pair.second.system) for pair in judgements]
    if len(systems) == _ORDERS and systems[0] != systems[1][::-1]:
        return "is that of another judgement, which is not of the same systems in the other order"
    return ""


def _text(text: bias_pb2.JudgedText) -> Text:
    return Text(text.system, text.family, text.length if text.HasField("length") else None)


def _encode_bias(group: PairBias) -> bias_pb2.PairBiasGroup:
    return bias_pb2.PairBiasGroup(
        group=group.group,
        judgement_count=group.judgements,
        tie_count=group.ties,
        abstained_count=group.abstained,
        first_share=encode_estimate(group.first_share),
        first_share_p=group.first_share_p,
        length=_encode_excess(group.length),
        own_family=_encode_excess(group.own_family),
        position=_encode_excess(group.position),
        swaps=bias_pb2.SwapConsistency(
            pair_count=group.swaps.pairs,
            consistent_share=encode_estimate(group.swaps.consistent_share),
            first_both_count=group.swaps.first_both,
            second_both_count=group.swaps.second_both,
            tie_once_count=group.swaps.tie_once,
        ),
    )


def _encode_excess(excess: PreferenceExcess) -> bias_pb2.PreferenceExcess:
    return bias_pb2.PreferenceExcess(
        judge_share=encode_estimate(excess.judge_share),
        human_share=encode_estimate(excess.human_share),
        excess=encode_estimate(excess.excess),
        excess_lower_bound=excess.lower_bound,
        excess_upper_bound=excess.upper_bound,
    )


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


def encode_means(found: Means) -> prediction_powered_pb2.EstimateMeansResponse:
    return prediction_powered_pb2.EstimateMeansResponse(
        means=[_encode_mean(one) for one in found.means],
        differences=[_encode_mean(one) for one in found.differences],
    )


def _encode_mean(one: PredictionPoweredMean) -> prediction_powered_pb2.PredictionPoweredMean:
    return prediction_powered_pb2.PredictionPoweredMean(
        system=one.system,
        prediction_powered=encode_estimate(one.prediction_powered),
        labels_alone=encode_estimate(one.labels_alone),
        predictions_alone=encode_estimate(one.predictions_alone),
        tuning_parameter=one.tuning_parameter,
        effective_labels=one.effective_labels,
    )


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
