"""What every ledger offers: completions kept under their fingerprints, and the calls under way."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from services.generation.calls import Purchase

MOST_LISTED = 1000
"""The most lost calls that a status lists; it counts all."""


class LedgerError(RuntimeError):
    """The ledger cannot be opened; the message names the store and the reason."""


class LedgerUnavailableError(RuntimeError):
    """The store does not answer now, so it is not known whether a completion was bought before."""


class LedgerKind(Enum):
    """Where a ledger keeps."""

    MEMORY = auto()
    """In the process, and forgotten with it."""
    SQLITE = auto()
    """In one file."""
    POSTGRESQL = auto()
    """In a database that many processes share."""


@dataclass(frozen=True, slots=True)
class LostCall:
    """A call that was sent and whose answer was never recorded: if asked again, it may be paid twice."""

    fingerprint: str
    """The call's."""
    sent_at: float
    """When, in seconds since 1970."""
    process: str
    """The id of the process that sent it."""
    abandoned: bool
    """Whether the process gave up waiting, and lived on. Otherwise it died."""


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    """What a ledger holds."""

    kind: LedgerKind
    completions: int
    size: int
    """How much room all of it takes, in bytes."""
    processes: int
    """How many live processes use it."""
    under_way: int
    """Calls sent by processes that live, whose answers are still to come."""
    lost: int
    """Calls sent by processes that died before the answer was recorded."""
    abandoned: int
    """Calls that a living process gave up on: at a deadline, on a lost connection, or with their caller."""
    lost_calls: tuple[LostCall, ...]
    """The latest of the lost and abandoned ones, latest first, at most [MOST_LISTED]."""
    unwritten: int = 0
    """Completions of this process that are safe on its disk and not yet in the shared store."""


class Ledger(Protocol):
    """Completions under the fingerprints of their requests, and the calls under way.

    The order for each purchase: look up ([get]), record the call ([record_call]), send it, store the answer
    ([put]), use it. A call that is neither stored nor settled may have been paid for in vain.
    """

    async def get(self, fingerprint: str) -> tuple[Purchase, ...]:
        """Returns the calls stored for a request, marked as cached. Empty: none are stored.

        Raises:
            LedgerUnavailableError: The store does not answer.
        """

    def record_call(self, fingerprint: str) -> int:
        """Records durably that a call is about to be sent, and returns its number.

        Raises:
            LedgerUnavailableError: The record cannot be written. The call must not be sent: its cost would go
                unreported if the process died.
        """

    async def put(self, fingerprint: str, purchases: Sequence[Purchase]) -> None:
        """Stores the calls in place of any stored before, and settles their records.

        Raises:
            OSError: The store fails. The records of the calls remain.
        """

    def settle(self, call_numbers: Collection[int]) -> None:
        """Removes the records of calls that were not charged, or whose answers are not kept."""

    def abandon(self, call_numbers: Collection[int]) -> None:
        """Marks abandoned calls, which may still be answered and charged."""

    async def status(self) -> LedgerStatus:
        """Counts completions and calls.

        Raises:
            LedgerUnavailableError: The store does not answer.
        """

    async def close(self) -> None:
        """Writes the pending changes and closes the store."""
