"""A request's calls as the text that stores hold."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic_core import to_json

from services.generation.calls import Purchase
from services.generation.records import kept_purchase_from_record, purchase_to_record

compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Writes a value as JSON in one line without blanks."""


def to_text(purchases: Sequence[Purchase]) -> str:
    """The calls as a JSON list in one line."""
    return to_json([purchase_to_record(purchase) for purchase in purchases]).decode()


def from_text(text: str) -> tuple[Purchase, ...]:
    """The inverse of [to_text]: the calls as they are served from a ledger, at no cost."""
    return tuple(map(kept_purchase_from_record, json.loads(text)))


def intents(purchases: Sequence[Purchase]) -> list[int]:
    """The numbers of the notes on these calls (see ``Ledger.intend``)."""
    return [purchase.answer.intent for purchase in purchases if purchase.answer.intent is not None]
