"""The interface of ledgers: completions by fingerprint, and calls in flight."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from services.generation.calls import Purchase

MOST_LISTED = 1000
"""The maximum number of lost calls that a status lists. Its counts include all."""


class LedgerError(RuntimeError):
    """The ledger cannot be opened; the message names the store and the reason."""


class LedgerUnavailableError(RuntimeError):
    """The store does not answer now, so it is unknown whether a completion is stored."""


class LedgerKind(Enum):
    """The storage of a ledger."""

    MEMORY = auto()
    """In memory; lost when the process ends."""
    SQLITE = auto()
    """In one SQLite file."""
    POSTGRESQL = auto()
    """In a database that several processes share."""


@dataclass(frozen=True, slots=True)
class LostCall:
    """A call that was charged twice if it was sent again: it has no recorded answer, or was sent again."""

    fingerprint: str
    """The call's."""
    sent_at: float
    """The time of sending, in seconds since 1970."""
    process: str
    """The id of the process that sent it."""
    abandoned: bool
    """Whether the process stopped waiting and lived on."""
    answered: bool = False
    """Whether it was answered, the answer was not stored, and the request was sent again. If neither, the
    process died."""


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    """The contents of a ledger, as counts."""

    kind: LedgerKind
    completions: int
    size: int
    """The size of the store in bytes."""
    processes: int
    """The number of live processes that use the ledger."""
    under_way: int
    """Calls in flight: sent by live processes and not yet answered."""
    lost: int
    """Calls sent by processes that died before the answer was recorded."""
    abandoned: int
    """Calls that a live process stopped waiting for: deadline, lost connection or cancelled caller."""
    bought_again: int
    """Calls whose answers were not stored and whose requests were sent again."""
    lost_calls: tuple[LostCall, ...]
    """The latest of these calls, latest first, at most [MOST_LISTED]."""
    unwritten: int = 0
    """Completions in the spool of this process that are not yet in the shared store."""


class Ledger(Protocol):
    """Completions by the fingerprints of their requests, and calls in flight.

    The order for each purchase: look up ([get]), record the call ([record_call]), send it, store the answer
    ([put]) or mark it as not stored ([mark_unstored]), use it. A call that is neither may have been charged
    without an answer of use.
    """

    async def get(self, fingerprint: str) -> tuple[Purchase, ...]:
        """Returns the calls stored for a request, marked as cached. Empty: none are stored.

        Raises:
            LedgerUnavailableError: The store does not answer.
        """

    async def record_call(self, fingerprint: str) -> int:
        """Records durably that a call is about to be sent, and returns its number.

        Raises:
            LedgerUnavailableError: The record cannot be written. The call must not be sent: its cost would go
                unreported if the process died.
        """

    async def put(self, fingerprint: str, purchases: Sequence[Purchase]) -> None:
        """Stores the calls in place of any stored before, and settles the records of this fingerprint.

        Calls with other fingerprints among them, such as the request to repair an answer, are not found by
        those, so that their records remain.

        Raises:
            OSError: The store fails. The records of the calls remain.
        """

    def settle(self, call_numbers: Collection[int]) -> None:
        """Removes the records of calls that were not charged, or whose answers are stored elsewhere."""

    def mark_unstored(self, call_numbers: Collection[int]) -> None:
        """Marks answered calls whose answers are not stored: sent again, they are charged again."""

    def abandon(self, call_numbers: Collection[int]) -> None:
        """Marks abandoned calls, which may still be answered and charged."""

    async def status(self) -> LedgerStatus:
        """Counts completions and calls.

        Raises:
            LedgerUnavailableError: The store does not answer.
        """

    async def close(self) -> None:
        """Writes the pending changes and closes the store."""
