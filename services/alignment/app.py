"""Application of the alignment service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from dramaturg.service.contract import Contract
from services.alignment.settings import AlignmentSettings


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
