"""Quotes of findings (the words of a text that a finding rests on) and phrases, found in texts.

A quote is found where the text has the same characters after Unicode normalization (NFKC), white space of
any length counting as one space. Letter case, punctuation and omissions count.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cached_property

from dramaturg.api.common.v1.content_pb2 import Document
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.common.v1.verdict_pb2 import Span
from dramaturg.judge.fence import visible

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


TEXT, CONTEXT, REFERENCE, TASK, INSTRUCTIONS = "text", "context", "reference", "task", "instructions"
"""The parts that a quote may be from (``Span.part``)."""
PARTS = (TEXT, CONTEXT, REFERENCE, TASK, INSTRUCTIONS)
"""All of them."""
MAX_PLACED_CHARACTERS = 200_000
"""The most characters of a candidate's sources in which the places of quotes in another form are looked for,
which takes a second of a processor for some two million. Beyond it a quote is found without its place.
"""


class _Source:
    """A text and the forms of it that quotes are looked for in, each made once."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def normalized(self) -> str:
        return normalized(self.text)

    @cached_property
    def shown(self) -> str:
        """As judges see it: invisible characters and control tokens as code points. Empty: it has none."""
        shown, escaped = visible(self.text)
        return normalized(shown) if escaped else ""

    @cached_property
    def places(self) -> tuple[str, Sequence[tuple[int, int]]]:
        """The characters that normalization makes of its parts, and where each of them is from."""
        characters: list[str] = []
        places: list[tuple[int, int]] = []
        for begin, end in _clusters(self.text):
            for character in unicodedata.normalize("NFKC", self.text[begin:end]):
                if character.isspace():
                    if not characters or characters[-1] == " ":
                        continue
                    character = " "
                characters.append(character)
                places.append((begin, end))
        return "".join(characters), places


class Sources:
    """The texts that quotes about a candidate may be from.

    Args:
        task: The task.
        texts: The judged text, or the turns of the judged conversation.
        context: The documents of the text, besides those of the task.
        reference: The reference. Empty: none.
    """

    def __init__(self, task: Task, texts: Sequence[str], context: Sequence[Document], reference: str) -> None:
        parts = {
            TEXT: texts,
            CONTEXT: [one.text for one in (*task.context, *context)],
            REFERENCE: [reference],
            TASK: [task.goal, *task.constraints],
            INSTRUCTIONS: [task.instructions],
        }
        self._parts = {part: [_Source(text) for text in each] for part, each in parts.items()}
        self._placeable = MAX_PLACED_CHARACTERS
        self._placed: set[_Source] = set()

    def locate(self, span: Span) -> None:
        """Finds the words of a span in its part: sets ``found``, ``index``, ``start`` and ``end``.

        Args:
            span: Its ``part`` and ``quote`` are given; everything else is replaced.
        """
        part, quote = span.part or TEXT, span.quote
        span.Clear()
        span.part, span.quote = part, quote
        wanted = normalized(quote)
        if not wanted:
            return
        for index, source in enumerate(self._parts.get(part, ())):
            start = source.text.find(wanted)
            if start >= 0:
                span.found, span.index, span.start, span.end = True, index, start, start + len(wanted)
                return
            if wanted in source.normalized:
                span.found, span.index, (span.start, span.end) = True, index, self._place(wanted, source)
                return
            if wanted in source.shown:
                span.found, span.index = True, index
                return

    def _place(self, wanted: str, source: _Source) -> tuple[int, int]:
        """The place of normalized words, in code points of the text. Zeros: it is not known."""
        if source not in self._placed:
            if len(source.text) > self._placeable:
                return 0, 0
            self._placeable -= len(source.text)
            self._placed.add(source)
        characters, places = source.places
        start = characters.find(wanted)
        # Normalization of the parts may differ from that of the whole where scripts compose across clusters.
        return (0, 0) if start < 0 else (places[start][0], places[start + len(wanted) - 1][1])


def normalized(text: str) -> str:
    """A text in the form that quotes are compared in."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _clusters(text: str) -> Iterator[tuple[int, int]]:
    """The runs of characters that normalization composes: a character with those that combine with it."""
    begin = 0
    for index in range(1, len(text) + 1):
        if index == len(text) or not _joins(text[index]):
            if index > begin:
                yield begin, index
            begin = index


def _joins(character: str) -> bool:
    return character > "\u02ff" and (
        unicodedata.combining(character) != 0 or "\u1160" <= character <= "\u11ff"
    )
