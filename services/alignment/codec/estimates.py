"""Estimates, and how their intervals are asked for."""

from __future__ import annotations

from dramaturg.api.alignment.v1 import estimate_pb2
from dramaturg.api.alignment.v1.agreement_pb2 import MeasureAgreementRequest
from dramaturg.api.alignment.v1.correlation_pb2 import CorrelateScoresRequest
from services.alignment.bootstrap import Resampling
from services.alignment.estimates import Estimate
from services.alignment.workers import Checkpoint

DEFAULT_LEVEL = 0.95
"""The level of intervals where the request names none."""


def encode_estimate(estimate: Estimate) -> estimate_pb2.Estimate:
    """Writes a figure; what is ``None`` stays absent."""
    return estimate_pb2.Estimate(
        value=estimate.value,
        lower=estimate.lower,
        upper=estimate.upper,
        count=estimate.count,
        undefined=estimate.undefined,
        interval_method=estimate.interval_method,
    )


def decode_resampling(
    request: MeasureAgreementRequest | CorrelateScoresRequest, checkpoint: Checkpoint
) -> Resampling:
    """Reads how intervals are to be made."""
    level = request.confidence_level if request.HasField("confidence_level") else DEFAULT_LEVEL
    return Resampling(request.resample_count, request.seed, level, checkpoint)
