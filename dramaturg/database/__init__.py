"""The database of runs and of the ledger: SQLite or PostgreSQL by SQLAlchemy Core.

The error is here, since SQLAlchemy takes longer to import than most commands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class StoreError(RuntimeError):
    """The store is unreachable or not writable. The message names it and the reason."""

    repeat: Callable[[], Any] | None = None
    """Completes the write that failed, with the result of the method. Absent: nothing was written.

    A caller that retries a write calls this, and not the method again: whether the write took effect may be
    unknown, and this makes it take effect once.
    """

    is_transient: bool = False
    """Whether the same transaction may succeed later unchanged, as after a lost connection."""
