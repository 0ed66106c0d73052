"""The backend of local encoders: a model in the process, run in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Generic, Protocol, TypeVar

from services.embedding.backend import Floats, InputT, ModelFacts, Prepared, TokenChoice, TokenVectors

ResultT = TypeVar("ResultT")

_TEXTS_AT_ONCE = 256


class Encoder(Protocol[InputT]):
    """A loaded model. Its methods block."""

    @property
    def dimension(self) -> int: ...

    @property
    def token_dimension(self) -> int: ...

    @property
    def layer_count(self) -> int: ...

    def prepare(self, texts: Sequence[str]) -> Sequence[Prepared[InputT]]:
        """Tokenizes texts."""

    def encode(self, inputs: Sequence[InputT]) -> Floats:
        """Encodes one batch into vectors of length 1, (batch, dimension)."""

    def encode_tokens(self, inputs: Sequence[InputT], choice: TokenChoice) -> Sequence[TokenVectors]: ...


class LocalBackend(Generic[InputT]):
    """An ``EmbeddingBackend`` over an ``Encoder``, loaded at the first need.

    Args:
        model: The model's name.
        load: Loads the encoder and returns it with the SHA-256 of its weights; called in a thread.
        workers: How many batches are worked on at once.
    """

    def __init__(self, model: str, load: Callable[[], tuple[Encoder[InputT], str]], workers: int = 1) -> None:
        self._model = model
        self._load = load
        self._workers = workers
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="embedding")
        self._loading: asyncio.Task[ModelFacts] | None = None
        self._encoder: Encoder[InputT] | None = None
        self._facts: ModelFacts | None = None

    @property
    def model(self) -> str:
        return self._model

    @property
    def workers(self) -> int:
        """The number of batches processed concurrently."""
        return self._workers

    @property
    def gives_tokens(self) -> bool:
        """Always true for local encoders."""
        return True

    async def load(self) -> ModelFacts:
        """Loads the model unless it is loaded. A failure is tried again by the next call.

        Raises:
            WeightsMissingError: the weights are not there, or not those that are meant.
        """
        if self._facts is not None:
            return self._facts
        if self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(self._load_once())
        # A caller that is cancelled leaves; the others still wait for the same load.
        return await asyncio.shield(self._loading)

    async def prepare(self, texts: Sequence[str]) -> Sequence[Prepared[InputT]]:
        """Reads texts, a few hundred at a time, so that other calls get their turn between."""
        encoder = self._loaded()
        prepared: list[Prepared[InputT]] = []
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            part = texts[start : start + _TEXTS_AT_ONCE]
            prepared += await self._in_thread(partial(encoder.prepare, part))
        return prepared

    async def encode(self, inputs: Sequence[InputT]) -> Floats:
        """Encodes one batch. A caller that is cancelled leaves; the batch is computed to its end."""
        encoder = self._loaded()
        return await self._in_thread(partial(encoder.encode, inputs))

    async def encode_tokens(self, inputs: Sequence[InputT], choice: TokenChoice) -> Sequence[TokenVectors]:
        """Encodes the tokens of one batch; see ``encode``."""
        encoder = self._loaded()
        return await self._in_thread(partial(encoder.encode_tokens, inputs, choice))

    async def close(self) -> None:
        """Stops the threads after their current batch."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _load_once(self) -> ModelFacts:
        encoder, digest = await self._in_thread(self._load)
        self._encoder = encoder
        self._facts = ModelFacts(
            self._model, encoder.dimension, encoder.token_dimension, encoder.layer_count, digest
        )
        return self._facts

    def _loaded(self) -> Encoder[InputT]:
        if self._encoder is None:
            raise RuntimeError("load() comes first")
        return self._encoder

    async def _in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
