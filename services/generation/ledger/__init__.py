"""The ledger of completions and of calls without a recorded answer. See ``docs/operate/generation.md``."""

from services.generation.ledger.ledger import IN_MEMORY, Ledger, is_ledger_url, open_ledger
from services.generation.ledger.store import (
    LedgerError,
    LedgerKind,
    LedgerStatus,
    LedgerUnavailableError,
    LostCall,
    migrate_ledger,
)

__all__ = [
    "IN_MEMORY",
    "Ledger",
    "LedgerError",
    "LedgerKind",
    "LedgerStatus",
    "LedgerUnavailableError",
    "LostCall",
    "is_ledger_url",
    "migrate_ledger",
    "open_ledger",
]
