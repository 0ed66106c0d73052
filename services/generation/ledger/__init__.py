"""The ledger of completions and of calls without a recorded answer. See ``docs/generation.md``."""

from services.generation.ledger.base import (
    Ledger,
    LedgerError,
    LedgerKind,
    LedgerStatus,
    LedgerUnavailableError,
    LostCall,
)
from services.generation.ledger.factory import IN_MEMORY, is_ledger_url, open_ledger
from services.generation.ledger.sqlite import SqliteLedger

__all__ = [
    "IN_MEMORY",
    "Ledger",
    "LedgerError",
    "LedgerKind",
    "LedgerStatus",
    "LedgerUnavailableError",
    "LostCall",
    "SqliteLedger",
    "is_ledger_url",
    "open_ledger",
]
