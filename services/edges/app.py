"""The edge service: settings, concurrent predictions with one model in threads, servicer, wiring."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar, TypeVar

import grpc
from pydantic import Field

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.generation.v1 import edge_service_pb2 as pb
from dramaturg.api.generation.v1 import edge_service_pb2_grpc
from dramaturg.api.graph.v1.graph_service_pb2 import PairProbability
from dramaturg.graphs.parsing.builder import MAX_ID_LENGTH, MAX_TEXT_LENGTH
from dramaturg.judge.provenance import sign
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError, Violation, invalid, invalid_fields
from dramaturg.service.settings import Settings
from services.edges.card import ModelCard
from services.edges.inference import BATCH_SIZE, WindowError
from services.edges.model import ModelMissingError, TrainedModel, load_model
from services.edges.order import Edge


class EdgesSettings(Settings):
    section: ClassVar[str] = "edges"

    model_dir: Path | None = None
    """The folder written by ``research graphs train``. Absent: calls fail with instructions to train a
    model.
    """
    preload: bool = False
    """Whether to load the model before the server listens. Otherwise the first call loads it, which takes
    some ten seconds.
    """
    batch_size: int = Field(default=64, ge=1, le=4096)
    """The maximum number of pairs of a batch, which bounds the work after a cancellation. A model that reads
    all events together processes at least one script.
    """
    workers: int = Field(default=1, ge=1, le=64)
    """The number of batches processed concurrently. One keeps all cores busy."""
    threads: int = Field(default=0, ge=0, le=1024)
    """Threads of the linear algebra. 0: one for each core."""
    device: str | None = Field(default=None, max_length=100)
    """The torch device, e.g. "cpu" or "cuda:0". Absent: the fastest available."""


ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Prediction:
    """The probabilities that events precede each other."""

    probabilities: Mapping[Edge, float]
    """By ordered pair of event indices."""
    truncated: int
    """The number of truncated inputs; each pair or script is several inputs, one for each order."""
    card: ModelCard
    """The card of the model."""


class Predictor:
    """Shares one model among all calls and loads it on first use.

    Args:
        load: Loads the model; called in a thread.
        batch_size: The maximum number of pairs of a batch.
        workers: The number of batches processed concurrently.
    """

    def __init__(
        self, load: Callable[[], TrainedModel], *, batch_size: int = BATCH_SIZE, workers: int = 1
    ) -> None:
        self._load = load
        self._batch_size = batch_size
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="edges")
        self._loading: asyncio.Task[TrainedModel] | None = None

    async def load(self) -> TrainedModel:
        """Loads the model if necessary. After a failure, the next call tries again.

        Raises:
            ModelMissingError: There is no model.
        """
        failed = self._loading is not None and self._loading.done() and _failed(self._loading)
        if self._loading is None or failed:
            self._loading = asyncio.create_task(self._in_thread(self._load))
        # Cancelling one caller must not cancel the load for the others.
        return await asyncio.shield(self._loading)

    async def predict(self, scenario: str, events: Sequence[str]) -> Prediction:
        """Predicts every pair of events. After cancellation it stops at the end of the current batch.

        Args:
            scenario: The goal of the script.
            events: The events' texts; at least two, none empty.

        Raises:
            ModelMissingError: There is no model.
            WindowError: The events are too long for a model that reads them together.
        """
        model = await self.load()
        inference = await self._in_thread(
            partial(model.encoder.inference, scenario, events, self._batch_size)
        )
        for batch in range(inference.batch_count):
            await self._in_thread(partial(inference.run_batch, batch))
        return Prediction(inference.probabilities(), inference.truncated, model.card)

    def close(self) -> None:
        """Stops the threads after their current batch."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _failed(task: asyncio.Task[TrainedModel]) -> bool:
    return task.cancelled() or task.exception() is not None


DESCRIPTOR = pb.DESCRIPTOR.services_by_name["EdgeService"]
NAME = "trained-edges"
"""The implementation's name."""
PROBABILITY_SOURCE = "classifier"

_METHODS = (pb.EDGE_METHOD_UNSPECIFIED, pb.EDGE_METHOD_PAIRWISE)


class EdgeServicer(edge_service_pb2_grpc.EdgeServiceServicer):
    """Predicts a probability for each ordered pair of events.

    Args:
        predictor: Runs the model.
        version: The version that answers give.
    """

    name = NAME

    def __init__(self, predictor: Predictor, version: str) -> None:
        self.version = version
        self._predictor = predictor

    async def PredictEdges(self, request: pb.PredictEdgesRequest, context: object) -> pb.PredictEdgesResponse:
        del context
        started = time.perf_counter()
        question = _decode(request)
        response = pb.PredictEdgesResponse(method=pb.EDGE_METHOD_PAIRWISE, dropped=question.dropped)
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
        sign(response.provenance, self, DESCRIPTOR.full_name, started=started)
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


logger = logging.getLogger(__name__)


class App:
    """The edge service."""

    name = "edges"

    def __init__(self, settings: EdgesSettings | None = None) -> None:
        self._settings = settings or EdgesSettings()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Sequence[Contract]]:
        """Starts the threads, loads the model if ``preload`` is set, and yields the contract."""
        settings = self._settings
        predictor = Predictor(self._load, batch_size=settings.batch_size, workers=settings.workers)
        if settings.preload:
            await _preload(predictor)
        try:
            yield [_contract(predictor)]
        finally:
            predictor.close()

    def _load(self) -> TrainedModel:
        settings = self._settings
        return load_model(settings.model_dir, device=settings.device, threads=settings.threads)


async def _preload(predictor: Predictor) -> None:
    try:
        await predictor.load()
    except ModelMissingError as missing:
        # The service starts anyway; each call fails with instructions.
        logger.warning("model missing", extra={"fields": {"problem": str(missing)}})


def _contract(predictor: Predictor) -> Contract:
    return Contract.make(
        DESCRIPTOR,
        edge_service_pb2_grpc.add_EdgeServiceServicer_to_server,
        EdgeServicer(predictor, version("dramaturg")),
        name=NAME,
        version=version("dramaturg"),
        description="Predicts edges between events with a trained encoder, without a language model.",
        capabilities=["pairwise"],
    )
