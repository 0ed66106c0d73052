"""Rule-based paraphrases of steps, for English."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from types import MappingProxyType

_SYNONYMS: Mapping[str, str] = MappingProxyType(
    {
        "begin": "start",
        "buy": "purchase",
        "choose": "select",
        "clean": "wash",
        "collect": "gather",
        "find": "locate",
        "gather": "collect",
        "get": "obtain",
        "mix": "stir together",
        "obtain": "get",
        "place": "put",
        "purchase": "buy",
        "put": "place",
        "repeat": "do again",
        "research": "read up on",
        "select": "choose",
        "start": "begin",
        "use": "make use of",
        "write": "put in writing",
    }
)
"""Synonyms of the first verb of a step."""
_FRAMES = ("Make sure to {}", "Be sure to {}", "Remember to {}", "Take care to {}", "See to it that you {}")
_FIRST_WORD = re.compile(r"[A-Za-z]+(?![\w'’-])")


def reword(step: str, draw: random.Random) -> str:
    """Paraphrases a step: replaces its first verb by a synonym, if known, and adds a phrase before it.

    Args:
        step: The step, in the imperative.
        draw: The random generator.
    """
    text = step.strip()
    first = _FIRST_WORD.match(text)
    if first:
        word = first[0]
        # Names and abbreviations keep their capitals.
        word = word if word.isupper() and len(word) > 1 else word.lower()
        text = _SYNONYMS.get(word, word) + text[first.end() :]
    return draw.choice(_FRAMES).format(text)
