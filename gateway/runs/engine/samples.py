"""What came of a sample, as it is kept."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.run_pb2 import (
    SAMPLE_STATE_FAILED,
    SAMPLE_STATE_SUCCEEDED,
    RunSample,
    RunSpec,
    SampleError,
)
from dramaturg.results.rows import flatten
from dramaturg.service.errors import ServiceError
from gateway.runs.engine.sampling import Sampled
from gateway.runs.records import SampleOutcome, SampleWork

logger = logging.getLogger(__name__)

MOST_DEATHS = 5
"""After so many gateways died of a sample, or with it, it fails."""

_RESULTS: Mapping[str, str] = {
    "scripts": "scripts",
    "texts": "texts",
    "graphs": "graphs",
    "decisions": "decision",
    "dialogues": "dialogue",
}
"""The member of ``RunSample.result`` by that of ``RunSpec.evaluation``."""


def outcome_of(sample: SampleWork, spec: RunSpec, sampled: Sampled) -> SampleOutcome:
    """What is kept of a sample that was evaluated. Its judgements are not flat yet."""
    kept = _kept(sample)
    kept.attempt_count = sampled.attempts
    if sampled.result is not None:
        kept.state = SAMPLE_STATE_SUCCEEDED
        result: Any = getattr(kept, _RESULTS[str(spec.WhichOneof("evaluation"))])
        result.CopyFrom(sampled.result)
    else:
        assert sampled.error is not None
        _fail(kept, sampled.error)
    return SampleOutcome(kept, (), sampled.usage, hindered=sampled.hindered)


def died_too_often(sample: SampleWork) -> SampleOutcome | None:
    """What is kept of a sample that gateways die of; None where it is no such sample."""
    if sample.tries < MOST_DEATHS:
        return None
    kept = _kept(sample)
    message = f"it was begun {sample.tries} times by gateways that died meanwhile"
    _fail(kept, ServiceError(grpc.StatusCode.ABORTED, error_reason_pb2.ERROR_REASON_INTERNAL, message))
    return SampleOutcome(kept, (), Usage())


def with_judgements(outcome: SampleOutcome) -> SampleOutcome:
    """The same with its judgements flat.

    A result that cannot be flattened is a fault of ours. It fails its sample: without an end the sample would
    be begun again for ever.
    """
    try:
        return replace(outcome, results=flatten(outcome.sample, texts=False))
    except Exception:
        logger.exception("a result cannot be flattened", extra={"fields": {"sample": outcome.sample.index}})
    kept = RunSample()
    kept.CopyFrom(outcome.sample)
    kept.ClearField("result")
    message = "its result cannot be kept; the gateway's log says why"
    _fail(kept, ServiceError(grpc.StatusCode.INTERNAL, error_reason_pb2.ERROR_REASON_INTERNAL, message))
    return replace(outcome, sample=kept)


def _kept(sample: SampleWork) -> RunSample:
    kept = RunSample(index=sample.index, line=sample.line, sample_id=sample.sample_id, tags=sample.tags)
    kept.end_time.FromMicroseconds(time.time_ns() // 1000)
    return kept


def _fail(kept: RunSample, error: ServiceError) -> None:
    kept.state = SAMPLE_STATE_FAILED
    kept.error.CopyFrom(
        SampleError(
            code=error.code.name,
            reason=error.reason,
            message=error.message,
            field=error.violations[0].field if error.violations else "",
        )
    )
