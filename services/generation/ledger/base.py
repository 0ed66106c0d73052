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


class KeptBy(Enum):
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

    kept_by: KeptBy
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
    """Keeps, under the fingerprint of a request, the calls that led to a usable answer.

    Whoever buys must have looked before; must say so before each call is sent ([intend]); and must put what
    was bought before anything else is done with it. Of a call that is neither put nor settled it is
    taken that it may have been paid for in vain.
    """

    async def get(self, fingerprint: str) -> tuple[Purchase, ...]:
        """The calls kept for the request, marked as cached. Empty: none are kept.

        Raises:
            LedgerUnavailableError: The store does not answer.
        """

    def intend(self, fingerprint: str) -> int:
        """Notes durably that a call is about to be sent; returns the note's number. Never raises.

        The note is for reports alone: a store that cannot take it does not stop the call.
        """

    async def put(self, fingerprint: str, purchases: Sequence[Purchase]) -> None:
        """Keeps the calls, in place of any kept before, and settles the notes on them.

        Raises:
            OSError: The store fails. The notes stand.
        """

    def settle(self, intents: Collection[int]) -> None:
        """Takes notes back: these calls were not answered, or their answers are not meant to be kept."""

    def abandon(self, intents: Collection[int]) -> None:
        """Notes that nobody waits for these calls any more, though they may be answered and paid for."""

    async def status(self) -> LedgerStatus:
        """What the ledger holds. Raises LedgerUnavailableError."""

    async def close(self) -> None:
        """Writes what is still to be written and closes the store."""
