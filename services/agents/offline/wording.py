"""Differences in wording that reverse the meaning of a step."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import chain

from services.agents.offline.lexicon import FUNCTION_WORDS, NEGATIONS, NUMBER_WORDS, OPPOSITES

_WORD = re.compile(r"\d+(?:[.,/]\d+)*|[^\W\d_]+(?:['’][^\W\d_]+)?")

_MOST_WORDS = 4
"""The maximum number of words of a difference, on each side."""


def normalise(step: str) -> str:
    """Normalises the width, case, spaces and final stop of a step."""
    text = unicodedata.normalize("NFKC", step).casefold()
    return " ".join(text.split()).rstrip(" .;,!。；！")


def words(text: str) -> list[str]:
    """Returns the words and numbers of a text, in lower case, in order."""
    return [word.replace("’", "'") for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold())]


def contrast(first: str, second: str) -> str | None:
    """Returns the difference that keeps two steps from being duplicates, regardless of their similarity.

    Returns:
        The difference in words, for example "on/off" or "2 against 3", or None.
    """
    left, right = Counter(words(first)), Counter(words(second))
    only_left, only_right = left - right, right - left
    counts = [
        _some(word for word in side if word[0].isdigit() or word in NUMBER_WORDS)
        for side in (only_left, only_right)
    ]
    if any(counts):
        return f"{counts[0] or 'no number'} against {counts[1] or 'no number'}"
    for one in only_left:
        for other in only_right:
            if frozenset((_stem(one), _stem(other))) in _STEMMED or frozenset((one, other)) in OPPOSITES:
                return f"{one}/{other}"
    for word in sorted(chain(only_left, only_right)):
        if word in NEGATIONS:
            return f"{word!r} in one alone"
    sides = [
        _some(word for word in side if word not in FUNCTION_WORDS)
        for side in _without_shared_stems(only_left, only_right)
    ]
    if any(sides):
        # "Draw the head" and "draw the body" are as similar as paraphrases.
        return f"{sides[0] or 'nothing'} against {sides[1] or 'nothing'}"
    return None


def _some(chosen: Iterable[str]) -> str:
    ordered = sorted(chosen)
    return " ".join(ordered[:_MOST_WORDS]) + (" …" if len(ordered) > _MOST_WORDS else "")


def _without_shared_stems(left: Counter[str], right: Counter[str]) -> tuple[list[str], list[str]]:
    shared = set(map(_stem, left)) & set(map(_stem, right))
    return (
        [word for word in left if _stem(word) not in shared],
        [word for word in right if _stem(word) not in shared],
    )


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s", "d", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


_STEMMED = frozenset(frozenset(map(_stem, pair)) for pair in OPPOSITES)
