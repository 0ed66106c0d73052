"""Application of the edge service."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version

from dramaturg.api.generation.v1 import edge_service_pb2_grpc
from dramaturg.service.contract import Contract
from services.edges.model import ModelMissingError, TrainedModel, load_model
from services.edges.predictor import Predictor
from services.edges.servicer import DESCRIPTOR, NAME, EdgeServicer
from services.edges.settings import EdgesSettings

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
