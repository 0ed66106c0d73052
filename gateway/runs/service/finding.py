"""Finds runs, and tells of them as messages."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.run_pb2 import Run
from gateway.runs.records import RunRecord
from gateway.runs.service.background import Background
from gateway.runs.service.encoding import describe
from gateway.runs.service.errors import not_found
from gateway.runs.store.base import RunStore


class Finder:
    """Finds a tenant's runs.

    Args:
        store: Where they are kept.
        background: Where it is asked.
    """

    def __init__(self, store: RunStore, background: Background) -> None:
        self._store = store
        self._background = background

    async def find(self, run_id: str, tenant: str) -> RunRecord:
        """A run.

        Raises:
            ServiceError: NOT_FOUND, also where it is another tenant's.
        """
        run = await self._background.call(self._store.get_run, run_id, tenant)
        if run is None:
            raise not_found(run_id)
        return run

    async def describe(self, run: RunRecord) -> Run:
        """The run as a message."""
        return await self._background.call(describe, run, self._store)
