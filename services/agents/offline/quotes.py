"""Quotes of steps in rationales."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST_QUOTE = 160
_MOST_QUOTES = 5


def quote(text: str) -> str:
    """A text in quotation marks, on one line, its middle left out where it is long."""
    line = " ".join(text.split())
    if len(line) > _LONGEST_QUOTE:
        half = _LONGEST_QUOTE // 2
        line = f"{line[:half]} … {line[-half:]}"
    return f'"{line}"'


def quote_all(texts: Iterable[str]) -> str:
    """Several texts in quotation marks; of many the first few, and how many more there are."""
    quoted = [quote(text) for text in texts]
    shown, rest = quoted[:_MOST_QUOTES], len(quoted) - _MOST_QUOTES
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")
