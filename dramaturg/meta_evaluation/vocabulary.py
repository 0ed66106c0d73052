"""How the steps of scripts use words: which are names, and which are verbs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

_WORD = re.compile(r"[^\W\d_][\w'\u2019-]*")
_SENTENCE_END = ".!?:"
_FUNCTION_WORDS = frozenset(
    "a an and as at but by for from if in into is it nor of off on onto or out "  # noqa: SIM905
    "over per so than that the to up via when while with without your".split()
)
"""Words that titles write in lower case."""
_NO_VERBS = _FUNCTION_WORDS | {"each", "first", "next", "one", "once", "then", "this", "you"}
_ARTICLES = frozenset({"a", "an", "the"})
_SEVERAL = 3


@dataclass(frozen=True)
class Vocabulary:
    """The words of scripts, in lower case."""

    names: frozenset[str] = frozenset()
    """Words that mostly have a capital inside of sentences."""
    name_parts: frozenset[tuple[str, str]] = frozenset()
    """Two words in a row that have capitals inside of sentences."""
    verbs: frozenset[str] = frozenset()
    """Words that several steps begin with, that often follow "to", and more often than an article."""

    @classmethod
    def of(cls, steps: Iterable[str]) -> Self:
        """Reads the words of steps."""
        lower: Counter[str] = Counter()
        capital: Counter[str] = Counter()
        parts: set[tuple[str, str]] = set()
        first: Counter[str] = Counter()
        infinitives: Counter[str] = Counter()
        nouns: Counter[str] = Counter()
        for step in steps:
            words = list(_WORD.finditer(step))
            first.update(word[0].lower() for word in words[:1])
            nouns.update(other[0] for one, other in pairwise(words) if one[0].lower() in _ARTICLES)
            inside = [word for word in words if not _begins_sentence(step, word.start())]
            for word in inside:
                (capital if word[0][0].isupper() else lower)[word[0].lower()] += 1
            for one, other in pairwise(words):
                if one[0] == "to":
                    infinitives[other[0]] += 1
                if other in inside and one[0][0].isupper() and other[0][0].isupper():
                    parts.add((one[0].lower(), other[0].lower()))
        names = frozenset(word for word, count in capital.items() if count > lower[word])
        verbs = frozenset(
            word
            for word, count in infinitives.items()
            if min(count, first[word]) >= _SEVERAL and count > nouns[word] and word not in _NO_VERBS
        )
        return cls(names, frozenset(parts), verbs)

    def in_sentence_case(self, text: str) -> str:
        """Writes a phrase of a title as inside of a sentence.

        Names keep their capitals, and so do words with a capital after their first letter. A phrase with a
        content word in lower case is no title, and returned as it is.

        Args:
            text: The phrase.
        """
        if not is_title(text):
            return text
        words = list(_WORD.finditer(text))
        keys = [word[0].lower() for word in words]
        kept = [
            key in self.names or word[0][1:] != word[0][1:].lower()
            for word, key in zip(words, keys, strict=True)
        ]
        for place, pair in enumerate(pairwise(keys)):
            if pair in self.name_parts and (kept[place] or kept[place + 1]):
                kept[place] = kept[place + 1] = True
        made, end = "", 0
        for word, key, named in zip(words, keys, kept, strict=True):
            made += text[end : word.start()] + (word[0] if named else key)
            end = word.end()
        return made + text[end:]


def is_title(text: str) -> bool:
    """Whether every content word of a phrase has a capital."""
    words = [word[0] for word in _WORD.finditer(text)]
    return all(word[0].isupper() for word in words if word.lower() not in _FUNCTION_WORDS)


def _begins_sentence(text: str, place: int) -> bool:
    before = text[:place].rstrip(" \"'(\u201c\u2018")
    return not before or before[-1] in _SENTENCE_END
