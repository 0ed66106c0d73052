"""Estimates, and how their intervals are asked for."""

from __future__ import annotations

from dramaturg.api.alignment.v1 import accuracy_pb2 as pb
from dramaturg.api.alignment.v1 import estimate_pb2
from dramaturg.api.alignment.v1.accuracy_pb2 import MeasureAccuracyRequest
from dramaturg.api.alignment.v1.agreement_pb2 import MeasureAgreementRequest
from dramaturg.api.alignment.v1.bias_pb2 import MeasurePairBiasRequest
from dramaturg.api.alignment.v1.calibration_pb2 import MeasureCalibrationRequest
from dramaturg.api.alignment.v1.compare_pb2 import CompareRunsRequest
from dramaturg.api.alignment.v1.correlation_pb2 import CorrelateScoresRequest
from dramaturg.api.alignment.v1.prediction_powered_pb2 import EstimateMeansRequest
from dramaturg.api.alignment.v1.preference_pb2 import MeasurePreferencesRequest
from dramaturg.api.alignment.v1.ranking_pb2 import RankSystemsRequest
from dramaturg.service.threads import Checkpoint
from services.alignment.accuracy.confusion import AbstentionPolicy
from services.alignment.bootstrap import Resampling
from services.alignment.estimates import Estimate

DEFAULT_LEVEL = 0.95
"""The level of intervals where the request names none."""

ResamplingRequest = (
    MeasureAccuracyRequest
    | MeasureAgreementRequest
    | CorrelateScoresRequest
    | CompareRunsRequest
    | RankSystemsRequest
    | MeasureCalibrationRequest
    | MeasurePreferencesRequest
)


def encode_estimate(estimate: Estimate) -> estimate_pb2.Estimate:
    """Encodes an estimate; ``None`` stays unset."""
    return estimate_pb2.Estimate(
        value=estimate.value,
        lower=estimate.lower,
        upper=estimate.upper,
        count=estimate.count,
        undefined=estimate.undefined,
        interval_method=estimate.interval_method,
        total=estimate.total or 0,
        standard_error=estimate.standard_error,
        interval_withheld=estimate.withheld,
    )


def decode_level(request: ResamplingRequest | MeasurePairBiasRequest | EstimateMeansRequest) -> float:
    return request.confidence_level if request.HasField("confidence_level") else DEFAULT_LEVEL


def decode_resampling(request: ResamplingRequest, checkpoint: Checkpoint) -> Resampling:
    """Decodes the resampling parameters."""
    return Resampling(request.resample_count, request.seed, decode_level(request), checkpoint)


_ENCODED = {
    AbstentionPolicy.EXCLUDED: pb.ABSTENTION_POLICY_EXCLUDED,
    AbstentionPolicy.WRONG: pb.ABSTENTION_POLICY_WRONG,
    AbstentionPolicy.WORST_CASE: pb.ABSTENTION_POLICY_WORST_CASE,
}
_DECODED = {message: policy for policy, message in _ENCODED.items()}


def decode_policy(policy: pb.AbstentionPolicy.ValueType) -> AbstentionPolicy:
    """Decodes a policy; unspecified is ``EXCLUDED``."""
    return _DECODED.get(policy, AbstentionPolicy.EXCLUDED)


def encode_policy(policy: AbstentionPolicy) -> pb.AbstentionPolicy.ValueType:
    return _ENCODED[policy]
