"""Says a step again in other words, by rule: what it does stays the same. The rules are English."""

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
"""First words of a step, and what says nearly the same."""
_FRAMES = ("Make sure to {}", "Be sure to {}", "Remember to {}", "Take care to {}", "See to it that you {}")
_FIRST_WORD = re.compile(r"[A-Za-z]+(?![\w'’-])")


def reword(step: str, draw: random.Random) -> str:
    """The step in other words: its first verb by another where one is known, and in a frame.

    Args:
        step: The step, an order to do something; of others the frame reads oddly.
        draw: Draws the frame.
    """
    text = step.strip()
    first = _FIRST_WORD.match(text)
    if first:
        word = first[0]
        # A name or an abbreviation keeps its capitals.
        word = word if word.isupper() and len(word) > 1 else word.lower()
        text = _SYNONYMS.get(word, word) + text[first.end() :]
    return draw.choice(_FRAMES).format(text)
