"""Estimates, and how their intervals are asked for."""

from __future__ import annotations

from dramaturg.api.alignment.v1 import accuracy_pb2 as pb
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
from services.alignment.bootstrap import Resampling

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


def decode_level(request: ResamplingRequest | MeasurePairBiasRequest | EstimateMeansRequest) -> float:
    return request.confidence_level if request.HasField("confidence_level") else DEFAULT_LEVEL


def decode_resampling(request: ResamplingRequest, checkpoint: Checkpoint) -> Resampling:
    """Decodes the resampling parameters."""
    return Resampling(request.resample_count, request.seed, decode_level(request), checkpoint)


def decode_policy(policy: pb.AbstentionPolicy.ValueType) -> pb.AbstentionPolicy.ValueType:
    """The policy; unspecified is ``EXCLUDED``."""
    return policy or pb.ABSTENTION_POLICY_EXCLUDED
