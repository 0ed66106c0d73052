"""Answers EdgeService with a trained model: decode, predict, encode."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import grpc
from google.protobuf.duration_pb2 import Duration

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.generation.v1 import edge_service_pb2 as pb
from dramaturg.api.generation.v1 import edge_service_pb2_grpc
from dramaturg.api.graph.v1.graph_service_pb2 import PairProbability
from dramaturg.service.errors import ServiceError, Violation, invalid, invalid_fields
from services.edges.inference import WindowError
from services.edges.model import ModelMissingError
from services.edges.predictor import Prediction, Predictor

DESCRIPTOR = pb.DESCRIPTOR.services_by_name["EdgeService"]
NAME = "trained-edges"
"""The implementation's name."""
PROBABILITY_SOURCE = "classifier"

MAX_ID_LENGTH, MAX_TEXT_LENGTH = 200, 20_000
"""In code points (``graph.v1.Event``)."""

_METHODS = (pb.EDGE_METHOD_UNSPECIFIED, pb.EDGE_METHOD_PAIRWISE)


class EdgeServicer(edge_service_pb2_grpc.EdgeServiceServicer):
    """Predicts a probability for each ordered pair of events.

    Args:
        predictor: Runs the model.
        version: The version that answers give.
    """

    def __init__(self, predictor: Predictor, version: str) -> None:
        self._predictor = predictor
        self._version = version

    async def PredictEdges(self, request: pb.PredictEdgesRequest, context: object) -> pb.PredictEdgesResponse:
        del context
        started = time.perf_counter()
        question = _decode(request)
        response = pb.PredictEdgesResponse(method=pb.EDGE_METHOD_PAIRWISE, dropped=question.dropped)
        response.provenance.CopyFrom(
            Provenance(name=NAME, version=self._version, contract=DESCRIPTOR.full_name)
        )
        if len(question.ids) < 2:
            response.abstain_reason = verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE
        else:
            try:
                prediction = await self._predictor.predict(request.scenario, question.texts)
            except ModelMissingError as missing:
                raise _weights_missing(missing) from missing
            except WindowError as problem:
                raise invalid("events", problem.description) from problem
            _encode(prediction, question, response)
        response.provenance.latency.CopyFrom(_duration(time.perf_counter() - started))
        return response


@dataclass(frozen=True)
class _Question:
    """The valid events, and messages about the others."""

    ids: list[str]
    texts: list[str]
    dropped: list[str]


def _decode(request: pb.PredictEdgesRequest) -> _Question:
    violations = list(_violations(request))
    if violations:
        raise invalid_fields(violations)
    told = [event for event in request.events if event.text.strip()]
    return _Question(
        ids=[event.id for event in told],
        texts=[event.text for event in told],
        dropped=[
            f"all pairs of event {event.id!r}, which has no text"
            for event in request.events
            if not event.text.strip()
        ],
    )


def _violations(request: pb.PredictEdgesRequest) -> Iterator[Violation]:
    if request.method not in _METHODS:
        yield Violation("method", "a trained model has EDGE_METHOD_PAIRWISE only")
    seen: set[str] = set()
    for index, event in enumerate(request.events):
        field = f"events[{index}]"
        if not event.id.strip():
            yield Violation(f"{field}.id", "is required")
        elif len(event.id) > MAX_ID_LENGTH:
            yield Violation(f"{field}.id", f"has {len(event.id)} code points; at most {MAX_ID_LENGTH}")
        elif event.id in seen:
            yield Violation(f"{field}.id", f"{event.id!r} names an earlier event too")
        if len(event.text) > MAX_TEXT_LENGTH:
            yield Violation(f"{field}.text", f"has {len(event.text)} code points; at most {MAX_TEXT_LENGTH}")
        seen.add(event.id)


def _encode(prediction: Prediction, question: _Question, response: pb.PredictEdgesResponse) -> None:
    response.probability_source = PROBABILITY_SOURCE
    response.threshold = prediction.card.threshold
    response.probabilities.extend(
        PairProbability(source_id=question.ids[i], target_id=question.ids[j], probability=probability)
        for (i, j), probability in sorted(prediction.probabilities.items())
    )
    parameters = response.provenance.parameters
    parameters.update(prediction.card.facts)
    parameters["truncated_readings"] = str(prediction.truncated)


def _weights_missing(missing: ModelMissingError) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.FAILED_PRECONDITION,
        error_reason_pb2.ERROR_REASON_WEIGHTS_MISSING,
        str(missing),
        metadata={"command": missing.command},
    )


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration
