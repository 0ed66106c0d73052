"""Local encoders: a model in the process, run in threads; and the sentence-transformers library as one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

from services.embedding.backend import (
    LAST_LAYER,
    Floats,
    InputT,
    ModelFacts,
    Prepared,
    TokenChoice,
    TokenVectors,
)
from services.embedding.weights import WEIGHTS_FILE, WeightsMissingError, verify

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor


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


INSTALL_COMMAND = "pip install 'dramaturg[embeddings]'"
"""What installs the library."""


class SentenceTransformerEncoder:
    """A loaded model. Its methods block for as long as they compute, and may be called by many threads.

    Args:
        model: The library's model.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        self._model = model
        # Measured: the declared dimension may differ from the actual one.
        self._dimension = int(self.encode([""]).shape[1])
        added = model.tokenizer("a", return_special_tokens_mask=True)["special_tokens_mask"]
        self._added_before = added.index(0)
        self._added_after = added[::-1].index(0)
        self._token_dimension = int(self.encode_tokens(["a"])[0].values.shape[1])

    @property
    def dimension(self) -> int:
        return self._dimension

    @property
    def token_dimension(self) -> int:
        """The length of a token's vector: the output of the encoder, before pooling and projection."""
        return self._token_dimension

    @property
    def layer_count(self) -> int:
        return int(self._model[0].auto_model.config.num_hidden_layers)

    def prepare(self, texts: Sequence[str]) -> list[Prepared[str]]:
        """Counts the tokens of texts, those at their ends included; the library cuts them itself."""
        window = self._model.max_seq_length
        encoded = self._model.tokenizer(list(texts), truncation=False, verbose=False)
        lengths = [len(ids) for ids in encoded["input_ids"]]
        return [
            Prepared(text, min(length, window or length), truncated=window is not None and length > window)
            for text, length in zip(texts, lengths, strict=True)
        ]

    def encode(self, inputs: Sequence[str]) -> Floats:
        """The vectors of whole texts, of length 1, (batch, dimension)."""
        vectors = self._model.encode(
            list(inputs), batch_size=len(inputs), normalize_embeddings=True, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float32)

    def encode_tokens(self, inputs: Sequence[str], choice: TokenChoice = LAST_LAYER) -> list[TokenVectors]:
        """The tokens of texts and their hidden states, scaled to length 1.

        A prompt that the model declares for whole texts is not put before them.
        """
        if choice.layer:
            return self._layer(inputs, choice)
        # Without an output value the library returns everything, including token ids.
        texts = self._model.encode(
            list(inputs), prompt="", batch_size=len(inputs), output_value=None, show_progress_bar=False
        )
        return [self._tokens(text, special=choice.special) for text in texts]

    def _layer(self, inputs: Sequence[str], choice: TokenChoice) -> list[TokenVectors]:
        import torch

        read = self._model.tokenizer(
            list(inputs),
            padding=True,
            truncation=True,
            max_length=self._model.max_seq_length,
            return_tensors="pt",
        ).to(self._model.device)
        with torch.no_grad():
            states = self._model[0].auto_model(**read, output_hidden_states=True).hidden_states[choice.layer]
        return [
            self._tokens(
                {"attention_mask": mask, "input_ids": ids, "token_embeddings": values}, special=choice.special
            )
            for mask, ids, values in zip(read["attention_mask"], read["input_ids"], states, strict=True)
        ]

    def _tokens(self, text: Mapping[str, Tensor], *, special: bool) -> TokenVectors:
        real = text["attention_mask"].bool()
        ids = text["input_ids"][real].tolist()
        first, last = (0, 0) if special else (self._added_before, self._added_after)
        own = slice(first, len(ids) - last)
        values: Floats = text["token_embeddings"][real][own].float().cpu().numpy()
        values = values / np.linalg.norm(values, axis=1, keepdims=True)
        return TokenVectors(
            self._model.tokenizer.convert_ids_to_tokens(ids[own]),
            values,
            leading=self._added_before if special else 0,
            trailing=self._added_after if special else 0,
        )


def load_sentence_transformer(
    source: Path | str, sha256: str | None
) -> tuple[SentenceTransformerEncoder, str]:
    """Loads a model; returns it with the SHA-256 of its weights, empty if they are not in a folder.

    Args:
        source: The model's folder, or its id on the hub of the library. An id is downloaded once, unless the
            environment sets HF_HUB_OFFLINE.
        sha256: What model.safetensors in the folder must hash to. None: it is not checked.

    Raises:
        WeightsMissingError: The library or the model is not there, or not the one that is meant.
    """
    digest = ""
    if isinstance(source, Path) and (sha256 is not None or (source / WEIGHTS_FILE).is_file()):
        if not (source / WEIGHTS_FILE).is_file():
            raise WeightsMissingError(f"{source} has no {WEIGHTS_FILE}")
        digest = verify(source, sha256)
    try:
        # Torch takes seconds and hundreds of megabytes to import; it is imported on first use.
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise WeightsMissingError(
            f"sentence-transformers is not installed ({error}): run `{INSTALL_COMMAND}`, or serve with the "
            "engine 'light' or 'openai'",
            INSTALL_COMMAND,
        ) from error
    try:
        return SentenceTransformerEncoder(SentenceTransformer(str(source))), digest
    except (OSError, ValueError) as error:
        raise WeightsMissingError(f"sentence-transformers cannot load {str(source)!r}: {error}") from error
