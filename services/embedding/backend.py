"""The interface of embedding backends: a library, an endpoint, or our own forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

InputT = TypeVar("InputT")


@dataclass(frozen=True)
class ModelFacts:
    """The facts about a loaded model."""

    name: str
    dimension: int
    """The length of a text's vector."""
    token_dimension: int = 0
    """The length of a token's vector; 0 where the backend gives none."""
    layer_count: int = 0
    """The number of layers with token vectors; 0 where the backend gives none."""
    weights_sha256: str = ""
    """The SHA-256 of the weights, in lower-case hexadecimal, where they are local."""


@dataclass(frozen=True)
class Prepared(Generic[InputT]):
    """A text prepared for encoding."""

    input: InputT
    """The backend's input, e.g. token ids."""
    length: int
    """How many tokens that is."""
    truncated: bool
    """Whether the text was longer than the model's window and cut off."""


@dataclass(frozen=True)
class TokenChoice:
    """Which vectors of tokens are wanted."""

    layer: int = 0
    """The layer whose hidden states they are, from 1. 0: the last."""
    special: bool = False
    """Whether the tokens that the model adds at the ends are included."""


LAST_LAYER = TokenChoice()
"""The last hidden states of a text's own tokens."""


@dataclass(frozen=True)
class TokenVectors:
    """The tokens of one text."""

    tokens: Sequence[str]
    """The tokens as the model splits the text."""
    values: Floats
    """Their vectors, each of length 1, (tokens, dimension)."""
    leading: int = 0
    """How many of the first tokens the model added."""
    trailing: int = 0
    """How many of the last tokens the model added."""


class EmbeddingBackend(Protocol[InputT]):
    """A source of vectors. Its methods do not block the event loop."""

    @property
    def model(self) -> str: ...

    @property
    def workers(self) -> int:
        """The number of batches processed concurrently."""

    @property
    def gives_tokens(self) -> bool:
        """Whether token vectors are available."""

    async def load(self) -> ModelFacts:
        """Makes the model ready; cheap once it is.

        Raises:
            WeightsMissingError: it cannot be.
            ServiceError: A dependency failed.
        """

    async def prepare(self, texts: Sequence[str]) -> Sequence[Prepared[InputT]]:
        """Reads texts, so that they can be put into batches by their lengths. The model is loaded."""

    async def encode(self, inputs: Sequence[InputT]) -> Floats:
        """Encodes one batch into vectors of length 1, (batch, dimension). The model is loaded."""

    async def encode_tokens(self, inputs: Sequence[InputT], choice: TokenChoice) -> Sequence[TokenVectors]:
        """Encodes one batch token by token. The model is loaded.

        Raises:
            NotImplementedError: It gives no tokens.
        """

    async def close(self) -> None:
        """Releases all resources. No method is called afterwards."""
