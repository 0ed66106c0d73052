"""Detects phrases in texts, for example an option in a scenario."""

from __future__ import annotations

import re

NEARLY = 0.8
"""The minimum share of a phrase's words for an approximate match."""

_LONG_PHRASE = 200
"""The maximum length, in characters, of a phrase whose ends are compared with those of words."""
_WORD = re.compile(r"\w+")
_POSSESSIVE = re.compile(r"['\u2019]s\b")
_LATIN = "0-9a-z\u00c0-\u024f"
_FUNCTION_WORDS = frozenset(
    """
    a an the this that these those some any to of for in on at by from with into onto over out up down off and
    or as it its is are be being been do does did have has had his her their our your my he she they them him
    one oneself himself herself themselves there here just then than very more
    """.split()  # noqa: SIM905 - more readable than a list
)


def names_phrase(text: str, phrase: str) -> bool:
    """Whether a text contains a phrase exactly or approximately.

    An exact match ignores case and spaces. An approximate match has at least ``NEARLY`` of the phrase's words
    in any order. English function words and endings do not count, so "calling libraries" matches "call the
    library". Synonyms are not recognised: "phones the library" does not match.

    Args:
        text: The text.
        phrase: The phrase. A blank phrase never matches.
    """
    if not phrase.strip():
        return False
    if _contains(_plain(text), _plain(phrase)):
        return True
    words = _words(phrase)
    return bool(words) and len(words & _words(text)) >= NEARLY * len(words)


def _contains(text: str, phrase: str) -> bool:
    """Whether a text contains a phrase that does not begin or end within a Latin word."""
    if len(phrase) > _LONG_PHRASE:
        return phrase in text  # A pattern would take quadratic time.
    # Scripts without spaces have no word boundaries.
    return re.search(rf"(?<![{_LATIN}]){re.escape(phrase)}(?![{_LATIN}])", text) is not None


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _words(text: str) -> set[str]:
    words = set(_WORD.findall(_POSSESSIVE.sub("", text.casefold())))
    return {_stem(word) for word in words - _FUNCTION_WORDS or words}


def _stem(word: str) -> str:
    """Removes the English ending of a word. The stem is rough, but equal for all forms of most words."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    if len(word) > 3 and word[-1] == word[-2]:
        return word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word
