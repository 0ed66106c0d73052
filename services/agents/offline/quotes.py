"""Quotes of steps in rationales."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST_QUOTE = 160
_MOST_QUOTES = 5


def quote(text: str) -> str:
    """Quotes a text on one line. The middle of long texts is omitted."""
    line = " ".join(text.split())
    if len(line) > _LONGEST_QUOTE:
        half = _LONGEST_QUOTE // 2
        line = f"{line[:half]} … {line[-half:]}"
    return f'"{line}"'


def quote_all(texts: Iterable[str]) -> str:
    """Quotes several texts. Of many, it quotes the first few and states the number of the others."""
    quoted = [quote(text) for text in texts]
    shown, rest = quoted[:_MOST_QUOTES], len(quoted) - _MOST_QUOTES
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")
