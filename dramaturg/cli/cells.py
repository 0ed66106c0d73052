"""How figures and counts are put, the same in every command."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.cli.tables import Cell, Noted

SMALLEST_P = 0.0001
"""Below it a p-value is shown as less than it."""


def figure(value: float | None, interval: Sequence[float] | None, why: str) -> Cell:
    """A figure with its interval, or a note why there is none.

    Args:
        value: The figure. None: it is undefined.
        interval: Its ends. None: it has none.
        why: Why it is undefined. Empty: that is not known.
    """
    if value is None:
        return Noted("-", f"undefined: {why}") if why else "-"
    return f"{value:.3f}" if interval is None else f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"


def p_value(p: float) -> str:
    """A p-value; none is shown as 0."""
    return f"{p:.4f}" if p >= SMALLEST_P else f"<{SMALLEST_P}"


def counted(count: int, noun: str) -> str:
    """A number of things, such as "1 text" or "2,000 texts"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def spent(usage: Usage) -> str:
    """What was consumed, to be put after a comma. Empty: nothing is known of it."""
    tokens = usage.prompt_token_count + usage.completion_token_count
    text = f", {tokens:,} tokens" if tokens else ""
    if usage.HasField("cost_usd") and (usage.cost_usd or not usage.unpriced_call_count):
        bound = "at least " if usage.unpriced_call_count else ""
        text += f", {bound}${usage.cost_usd:.4f}"
    return text
