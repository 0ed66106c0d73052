"""Concurrent predictions with one model, in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from services.edges.card import ModelCard
from services.edges.inference import BATCH_SIZE
from services.edges.model import TrainedModel
from services.edges.order import Edge

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
