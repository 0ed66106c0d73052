"""What a ledger holds, and its errors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

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
    """Calls in flight: sent by live processes, and their answers are not yet stored."""
    lost: int
    """Calls sent by processes that died before the answer was recorded."""
    abandoned: int
    """Calls that a live process stopped waiting for: deadline, lost connection or cancelled caller."""
    bought_again: int
    """Calls whose answers were not stored and whose requests were sent again."""
    lost_calls: tuple[LostCall, ...]
    """The latest of these calls, latest first, at most [MOST_LISTED]."""
    unwritten: int = 0
    """Completions of this process whose commit is not acknowledged. Their callers wait."""
