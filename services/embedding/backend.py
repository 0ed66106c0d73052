"""What turns texts into vectors, whatever it is: a library, an endpoint, our own forward pass."""

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
    """What is known of a model once it is loaded."""

    name: str
    dimension: int
    weights_sha256: str = ""
    """The SHA-256 of the weights, in lower-case hexadecimal, where they are local."""


@dataclass(frozen=True)
class Prepared(Generic[InputT]):
    """A text as the backend reads it."""

    input: InputT
    """What the backend encodes, such as token ids."""
    length: int
    """How many tokens that is."""
    truncated: bool
    """Whether the text was longer than the model's window and cut off."""


class EmbeddingBackend(Protocol[InputT]):
    """A source of vectors. Its methods leave the event loop free."""

    @property
    def model(self) -> str:
        """The name of the model that it serves."""

    @property
    def workers(self) -> int:
        """How many batches it works on at once."""

    async def load(self) -> ModelFacts:
        """Makes the model ready; cheap once it is.

        Raises:
            WeightsMissingError: it cannot be.
            ServiceError: what it depends on failed.
        """

    async def prepare(self, texts: Sequence[str]) -> Sequence[Prepared[InputT]]:
        """Reads texts, so that they can be put into batches by their lengths. The model is loaded."""

    async def encode(self, inputs: Sequence[InputT]) -> Floats:
        """Encodes one batch into vectors of length 1, (batch, dimension). The model is loaded."""

    async def close(self) -> None:
        """Gives up what it holds. Nothing is called afterwards."""
