"""Whether a text names a phrase, for example a scenario an option."""

from __future__ import annotations

import re

NEARLY = 0.8
"""The share of a phrase's words that names it nearly."""

_WORD = re.compile(r"\w+")
_POSSESSIVE = re.compile(r"['\u2019]s\b")
_LATIN = "0-9a-z\u00c0-\u024f"
_FUNCTION_WORDS = frozenset(
    """
    a an the this that these those some any to of for in on at by from with into onto over out up down off and
    or as it its is are be being been do does did have has had his her their our your my he she they them him
    one oneself himself herself themselves there here just then than very more
    """.split()  # noqa: SIM905 - a page of quotation marks
)


def names_phrase(text: str, phrase: str) -> bool:
    """Whether a text names a phrase, wholly or nearly.

    It does if it contains the phrase, ignoring case and spaces, or if it has at least
    ``NEARLY`` of the phrase's words in any order. English function words and endings do not count, so
    that "calling libraries" names "call the library". It is a check of words: "phones the library" does not.

    Args:
        text: The text.
        phrase: The phrase. A blank one is never named.
    """
    if not phrase.strip():
        return False
    # Scripts without spaces have no word boundaries to look for.
    whole = rf"(?<![{_LATIN}]){re.escape(_plain(phrase))}(?![{_LATIN}])"
    if re.search(whole, _plain(text)):
        return True
    words = _words(phrase)
    return bool(words) and len(words & _words(text)) >= NEARLY * len(words)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _words(text: str) -> set[str]:
    words = set(_WORD.findall(_POSSESSIVE.sub("", text.casefold())))
    return {_stem(word) for word in words - _FUNCTION_WORDS or words}


def _stem(word: str) -> str:
    """The word without its English ending; rough, but the same for all forms of most words."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    if len(word) > 3 and word[-1] == word[-2]:
        return word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word
