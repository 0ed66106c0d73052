"""Application of the alignment service, and its settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

from pydantic import Field

from dramaturg.service.contract import Contract
from dramaturg.service.settings import Address, Settings


class AlignmentSettings(Settings):
    """Settings of the alignment service."""

    section: ClassVar[str] = "alignment"

    embedding_target: Address = ""
    """The address of EmbeddingService, ``host:port``. Empty: the metrics "embedding",
    "embedding-greedy" and "bertscore" are undefined, with a reason in the response.
    """
    embedding_model: str = ""
    """The embedding model. Empty: the default of EmbeddingService."""
    bertscore_layer: int = Field(default=0, ge=0, le=1000)
    """The layer of the embedding model whose hidden states BERTScore compares, from 1. 0: the last."""
    bertscore_baseline: tuple[float, float, float] | None = None
    """The baseline of BERTScore: the precision, recall and F1 that become 0. Unset: they are not rescaled."""
    workers: int = Field(default=2, ge=1, le=64)
    """The number of requests computed concurrently, each in a thread."""
    waiting: int = Field(default=64, ge=0)
    """The number of requests that may wait for a thread; further ones fail with ERROR_REASON_OVERLOADED. Each
    waiting request holds its message in memory, up to the server's ``max_message_bytes``.
    """


class App:
    """The alignment service. Uses EmbeddingService if its address is configured.

    Args:
        settings: Default: read from the environment.
    """

    name = "alignment"

    def __init__(self, settings: AlignmentSettings | None = None) -> None:
        self._settings = settings or AlignmentSettings()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        # NumPy and SciPy take longer to import than a command that reads the settings alone.
        from services.alignment.servicer import open_contract

        async with open_contract(self._settings) as contract:
            yield [contract]
