"""Messages of MeasureCalibration."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dramaturg.api.alignment.v1 import calibration_pb2 as pb
from services.alignment.bootstrap import Index, group_codes
from services.alignment.calibration.judgements import Judgements, Threshold
from services.alignment.calibration.measure import Calibration, Design
from services.alignment.codec.estimates import decode_resampling, encode_estimate
from services.alignment.workers import Checkpoint

DEFAULT_BINS = 10
"""How many bins there are where the request names no number."""
_CHUNK = 10_000


def decode_judgements(
    request: pb.MeasureCalibrationRequest, checkpoint: Checkpoint
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


def decode_design(request: pb.MeasureCalibrationRequest, checkpoint: Checkpoint) -> Design:
    """Decodes the design."""
    return Design(
        bins=request.bin_count or DEFAULT_BINS,
        equal_count=request.binning == pb.BINNING_EQUAL_COUNT,
        target=request.target_accuracy if request.HasField("target_accuracy") else None,
        clustered=bool(request.cluster_tag),
        resampling=decode_resampling(request, checkpoint),
        recalibrated=request.recalibrate,
    )


def encode_calibrations(groups: Sequence[Calibration]) -> pb.MeasureCalibrationResponse:
    return pb.MeasureCalibrationResponse(groups=[_encode(group) for group in groups])


def _encode(group: Calibration) -> pb.CalibrationGroup:
    message = pb.CalibrationGroup(
        group=group.group,
        item_count=group.items,
        bins=[
            pb.ReliabilityBin(
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
            pb.Recalibration(
                method=one.method,
                brier_score=encode_estimate(one.brier_score),
                expected_calibration_error=encode_estimate(one.expected_error),
                points=[
                    pb.CalibrationPoint(confidence=before, recalibrated=after) for before, after in one.points
                ],
            )
            for one in group.recalibrations
        ],
    )
    if group.threshold is not None:
        message.threshold.CopyFrom(_encode_threshold(group.threshold))
    return message


def _encode_threshold(threshold: Threshold) -> pb.AbstentionThreshold:
    return pb.AbstentionThreshold(
        target_accuracy=threshold.target,
        threshold=threshold.threshold,
        undefined=threshold.undefined,
        chosen_accuracy=encode_estimate(threshold.chosen_accuracy),
        held_out_accuracy=encode_estimate(threshold.held_out_accuracy),
        held_out_coverage=encode_estimate(threshold.held_out_coverage),
    )
