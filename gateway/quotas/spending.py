"""What a tenant has spent today: through evaluations of this gateway, and through runs of all gateways."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from dramaturg.api.common.v1.provenance_pb2 import Usage
from gateway.runs.records import RunRecord

if TYPE_CHECKING:  # the store takes longer to import than most commands to run
    from gateway.runs.store.base import RunStore

_PAGE = 200
_FRESH_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens and US dollars."""

    tokens: int = 0
    usd: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.tokens + other.tokens, self.usd + other.usd)


def spent(usage: Usage) -> Spent:
    """What a usage comes to. Calls whose price is not known cost nothing here."""
    return Spent(usage.prompt_token_count + usage.completion_token_count, usage.cost_usd)


@dataclass
class _Day:
    """What one tenant spent on one day."""

    day: datetime
    evaluations: Spent = Spent()
    runs: dict[str, Spent] = field(default_factory=dict)
    """By run. What was seen stays: nobody gets money back by deleting a run."""
    read: float = float("-inf")
    """When the runs were last read, on the clock of ``time.monotonic``."""


class Spending:
    """Adds up what tenants spend.

    A run counts, with all that it costs, on the day (UTC) on which it was created.

    Attributes:
        store: Where runs are kept. ``None``: there are none.
    """

    def __init__(self) -> None:
        self.store: RunStore | None = None
        self._days: dict[str, _Day] = {}

    def add(self, tenant: str, usage: Usage) -> None:
        """Takes note of what an evaluation cost."""
        day = self._day(tenant)
        day.evaluations += spent(usage)

    async def today(self, tenant: str, *, fresh: bool = False) -> Spent:
        """What a tenant has spent today.

        Args:
            tenant: Whose spending.
            fresh: Whether runs are read now; else what was read seconds ago will do.
        """
        day = self._day(tenant)
        if self.store is not None and (fresh or time.monotonic() - day.read > _FRESH_SECONDS):
            day.read = time.monotonic()
            for run in await asyncio.to_thread(_runs_since, self.store, tenant, day.day):
                day.runs[run.id] = spent(run.counts.usage)
        return sum(day.runs.values(), day.evaluations)

    async def active_runs(self, tenant: str) -> int:
        """How many runs of a tenant have not ended."""
        if self.store is None:
            return 0
        return sum(run.tenant == tenant for run in await asyncio.to_thread(self.store.active_runs))

    def _day(self, tenant: str) -> _Day:
        today = start_of_day()
        known = self._days.get(tenant)
        if known is None or known.day != today:
            known = self._days[tenant] = _Day(today)
        return known


def start_of_day() -> datetime:
    """When this day (UTC) began."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def seconds_until_tomorrow() -> float:
    """Seconds until the next day (UTC)."""
    return (start_of_day() + timedelta(days=1) - datetime.now(UTC)).total_seconds()


def _runs_since(store: RunStore, tenant: str, since: datetime) -> list[RunRecord]:
    return list(_newest_until(store, tenant, since))


def _newest_until(store: RunStore, tenant: str, since: datetime) -> Iterator[RunRecord]:
    before: tuple[datetime, str] | None = None
    while page := store.list_runs(tenant, limit=_PAGE, before=before):
        for run in page:
            if run.create_time < since:
                return
            yield run
        before = (page[-1].create_time, page[-1].id)
