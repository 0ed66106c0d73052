"""Embeds texts: each text once, in batches, remembering what was embedded before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from services.embedding.backend import EmbeddingBackend, InputT, ModelFacts
from services.embedding.batches import plan_batches
from services.embedding.cache import Vector, VectorCache, text_key


@dataclass(frozen=True)
class Embedded:
    """The answer to one request."""

    vectors: Sequence[Vector]
    """One for each text, in order."""
    facts: ModelFacts


class Embedder(Generic[InputT]):
    """Shares one backend and one cache among all requests.

    Args:
        backend: Makes the vectors.
        cache: Keeps them.
        batch_tokens: The most tokens of a batch.
    """

    def __init__(self, backend: EmbeddingBackend[InputT], cache: VectorCache, batch_tokens: int) -> None:
        self._backend = backend
        self._cache = cache
        self._batch_tokens = batch_tokens
        self._turns = asyncio.Semaphore(backend.workers)

    @property
    def model(self) -> str:
        """The name of the model that is served."""
        return self._backend.model

    async def load(self) -> ModelFacts:
        """Makes the model ready.

        Raises:
            WeightsMissingError: it cannot be.
        """
        return await self._backend.load()

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Embeds texts. Cancelled, it stops after the batch under way.

        Raises:
            WeightsMissingError: the model cannot be loaded.
        """
        facts = await self._backend.load()
        keys = [text_key(text) for text in texts]
        wanted = dict(zip(keys, texts, strict=True))
        found: dict[bytes, Vector] = {}
        missing = [key for key in wanted if not self._recall(key, found)]
        if missing:
            await self._compute(missing, wanted, found)
        return Embedded([found[key] for key in keys], facts)

    def _recall(self, key: bytes, found: dict[bytes, Vector]) -> bool:
        vector = self._cache.get(key)
        if vector is not None:
            found[key] = vector
        return vector is not None

    async def _compute(
        self, missing: Sequence[bytes], wanted: dict[bytes, str], found: dict[bytes, Vector]
    ) -> None:
        prepared = await self._backend.prepare([wanted[key] for key in missing])
        for batch in plan_batches([text.length for text in prepared], self._batch_tokens):
            async with self._turns:
                # Several agents ask for one candidate at the same time: what another request has embedded
                # while this one waited for its turn is there by now.
                rest = [index for index in batch if not self._recall(missing[index], found)]
                if not rest:
                    continue
                rows = await self._backend.encode([prepared[index].input for index in rest])
            for index, row in zip(rest, rows, strict=True):
                # A row of its own: a view would keep the whole batch alive.
                vector = Vector(row.copy(), prepared[index].truncated)
                found[missing[index]] = vector
                self._cache.put(missing[index], vector)
