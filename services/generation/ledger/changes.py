"""The changes of a ledger that are committed together."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SentCall:
    """A call that is about to be sent."""

    number: int
    """Its number in the process that sends it."""
    fingerprint: str
    sent_at: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class StoredCompletion:
    """A completion to store."""

    fingerprint: str
    recorded_at: float
    """Seconds since 1970."""
    purchases: str
    """As [records.to_text] writes them."""
    call_numbers: Collection[int]
    """The calls whose records end with it."""


@dataclass(slots=True)
class Changes:
    """Changes of one process, in the order in which they were made."""

    sent: list[SentCall] = field(default_factory=list)
    stored: list[StoredCompletion] = field(default_factory=list)
    abandoned: set[int] = field(default_factory=set)
    """The numbers of calls to mark as abandoned."""
    unstored: set[int] = field(default_factory=set)
    """The numbers of answered calls to mark as not stored."""
    settled: set[int] = field(default_factory=set)
    """The numbers of calls whose records end."""

    @property
    def is_awaited(self) -> bool:
        """Whether a caller waits for the commit."""
        return bool(self.sent or self.stored)

    @property
    def is_empty(self) -> bool:
        return not (self.is_awaited or self.abandoned or self.unstored or self.settled)

    def carry(self, failed: Changes) -> None:
        """Adds the changes of a failed transaction for which no caller waits."""
        self.abandoned |= failed.abandoned
        self.unstored |= failed.unstored
        self.settled |= failed.settled
