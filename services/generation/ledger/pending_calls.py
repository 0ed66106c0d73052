"""The calls of this process in flight, and their changes that are not yet in the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from services.generation.ledger.spool import Sent


@dataclass(slots=True)
class PendingCalls:
    """Calls by number (see ``Ledger.record_call``). Most are settled before they are written to the store."""

    _fresh: dict[int, Sent] = field(default_factory=dict)
    """In flight and not in the store, oldest first."""
    _posted: dict[int, Sent] = field(default_factory=dict)
    """In flight and in the store."""
    settled: list[int] = field(default_factory=list)
    """To be removed from the store."""
    abandoned: dict[int, Sent] = field(default_factory=dict)
    """Abandoned calls, to be marked in the store."""
    unstored: dict[int, Sent] = field(default_factory=dict)
    """Answered calls whose answers are not stored, to be marked in the store."""

    def add(self, number: int, sent: Sent) -> None:
        self._fresh[number] = sent

    def settle(self, numbers: Collection[int]) -> None:
        for number in numbers:
            if self._fresh.pop(number, None) is None and self._posted.pop(number, None) is not None:
                self.settled.append(number)

    def abandon(self, numbers: Collection[int]) -> None:
        self.abandoned |= self._end(numbers)

    def mark_unstored(self, numbers: Collection[int]) -> None:
        self.unstored |= self._end(numbers)

    def _end(self, numbers: Collection[int]) -> dict[int, Sent]:
        """Takes calls out of those in flight."""
        ended = {
            number: self._fresh.pop(number, None) or self._posted.pop(number, None) for number in numbers
        }
        return {number: sent for number, sent in ended.items() if sent is not None}

    @property
    def under_way(self) -> Mapping[int, Sent]:
        return self._fresh | self._posted

    def post(self, latest: float) -> dict[int, Sent]:
        """Returns the calls to write to the store: those sent by ``latest``, in seconds since 1970."""
        old = list(takewhile(lambda number: self._fresh[number].sent_at <= latest, self._fresh))
        sent = {number: self._fresh.pop(number) for number in old}
        self._posted |= sent
        return sent
