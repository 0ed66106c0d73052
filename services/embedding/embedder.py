"""Embedding of texts: an LRU cache of vectors, batches of similar length, one computation of equal texts."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from services.embedding.backend import (
    LAST_LAYER,
    EmbeddingBackend,
    Floats,
    InputT,
    ModelFacts,
    TokenChoice,
    TokenVectors,
)

_OVERHEAD = 400
"""Bytes of an entry besides its vector: key, array header and table slots."""


@dataclass(frozen=True, slots=True)
class Vector:
    values: Floats
    """Of length 1, (dimension,)."""
    truncated: bool
    """Whether the text was longer than the model's window and cut off."""


def text_key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class VectorCache:
    """An LRU cache of one model's vectors, bounded by bytes."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._vectors: OrderedDict[bytes, Vector] = OrderedDict()
        self._size = 0

    @property
    def size(self) -> int:
        return self._size

    def __len__(self) -> int:
        return len(self._vectors)

    def get(self, key: bytes) -> Vector | None:
        """Returns a vector and marks it as most recently used."""
        vector = self._vectors.get(key)
        if vector is not None:
            self._vectors.move_to_end(key)
        return vector

    def put(self, key: bytes, vector: Vector) -> None:
        """Stores a vector unless it is larger than the capacity."""
        size = _size(vector)
        if size > self._capacity or key in self._vectors:
            return
        self._vectors[key] = vector
        self._size += size
        while self._size > self._capacity:
            _, oldest = self._vectors.popitem(last=False)
            self._size -= _size(oldest)


def _size(vector: Vector) -> int:
    return vector.values.nbytes + _OVERHEAD


MAX_TOKEN_BYTES = 48 << 20
"""The most bytes that the vectors of one request's tokens take: clients read answers of up to 64 MiB."""
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Embedded:
    """The answer to one request."""

    vectors: Sequence[Vector]
    """One for each text, in order."""
    facts: ModelFacts


@dataclass(frozen=True)
class EmbeddedTokens:
    """The answer to one request for tokens."""

    texts: Sequence[TokenVectors]
    """One for each text, in order."""
    truncated: Sequence[bool]
    """Whether each text was longer than the model's window and cut off."""
    facts: ModelFacts


class TokensTooLargeError(Exception):
    """The vectors of a request's tokens would take too many bytes.

    Attributes:
        actual: How many, in bytes.
    """

    def __init__(self, actual: int) -> None:
        super().__init__(f"the vectors would take {actual} bytes; at most {MAX_TOKEN_BYTES} are allowed")
        self.actual = actual


class NoSuchLayerError(Exception):
    """The model does not have the requested layer; the message has the number of its layers."""


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
        return self._backend.model

    async def load(self) -> ModelFacts:
        """Makes the model ready.

        Raises:
            WeightsMissingError: it cannot be.
        """
        return await self._backend.load()

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Embeds texts. Cancelled, it stops after the current batch.

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

    @property
    def gives_tokens(self) -> bool:
        """Whether token vectors are available."""
        return self._backend.gives_tokens

    async def embed_tokens(self, texts: Sequence[str], choice: TokenChoice = LAST_LAYER) -> EmbeddedTokens:
        """Embeds the tokens of texts. Nothing is kept: a text's take hundreds of times the room of its own.

        Raises:
            WeightsMissingError: the model cannot be loaded.
            NoSuchLayerError: the model does not have the layer.
            TokensTooLargeError: there are too many tokens.
        """
        facts = await self._backend.load()
        if choice.layer > facts.layer_count:
            raise NoSuchLayerError(f"is {choice.layer}; {facts.name!r} has {facts.layer_count} layers")
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        prepared = await self._backend.prepare(list(places))
        length = sum(prepared[places[text]].length for text in texts)
        if (size := length * facts.token_dimension * _FLOAT_BYTES) > MAX_TOKEN_BYTES:
            raise TokensTooLargeError(size)
        found: dict[int, TokenVectors] = {}
        for batch in plan_batches([text.length for text in prepared], self._batch_tokens):
            async with self._turns:
                rows = await self._backend.encode_tokens([prepared[place].input for place in batch], choice)
            found |= zip(batch, rows, strict=True)
        return EmbeddedTokens(
            [found[places[text]] for text in texts],
            [prepared[places[text]].truncated for text in texts],
            facts,
        )

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


def plan_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Groups texts of about equal length.

    A batch is padded to its longest text, so mixing lengths wastes work; and memory grows with the padded
    tokens, so these are capped and not the texts.

    Args:
        lengths: The tokens of each text, at least 1.
        budget: The most tokens of a batch, padding included. A longer text is a batch of its own.

    Returns:
        Indices into ``lengths``, every one exactly once, longest texts first.
    """
    batches: list[list[int]] = []
    room = 0
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        if room == 0:
            batches.append([])
            # The first text of a batch is its longest: that fixes how many fit.
            room = max(1, budget // lengths[index])
        batches[-1].append(index)
        room -= 1
    return batches
