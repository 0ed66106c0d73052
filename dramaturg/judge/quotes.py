"""Quotes of findings: the words of a text that a finding rests on, found in it.

A quote is found where the text has the same characters after Unicode normalization (NFKC), white space of
any length counting as one space. Letter case, punctuation and omissions count.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence

from dramaturg.api.common.v1.content_pb2 import Document
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.common.v1.verdict_pb2 import Span
from dramaturg.judge.fence import visible

TEXT, CONTEXT, REFERENCE, TASK, INSTRUCTIONS = "text", "context", "reference", "task", "instructions"
"""The parts that a quote may be from (``Span.part``)."""
PARTS = (TEXT, CONTEXT, REFERENCE, TASK, INSTRUCTIONS)
"""All of them."""


def sources_of(
    task: Task, texts: Sequence[str], context: Sequence[Document], reference: str
) -> Mapping[str, Sequence[str]]:
    """The texts of each part.

    Args:
        task: The task.
        texts: The judged text, or the turns of the judged conversation.
        context: The documents of the text, besides those of the task.
        reference: The reference. Empty: none.
    """
    documents = [*task.context, *context]
    return {
        TEXT: texts,
        CONTEXT: [one.text for one in documents],
        REFERENCE: [reference],
        TASK: [task.goal, *task.constraints],
        INSTRUCTIONS: [task.instructions],
    }


def locate(span: Span, sources: Mapping[str, Sequence[str]]) -> None:
    """Finds the words of a span in its part: sets ``found``, ``index``, ``start`` and ``end``.

    Args:
        span: Its ``part`` and ``quote`` are given; everything else is replaced.
        sources: The texts of each part (``sources_of``).
    """
    part, quote = span.part or TEXT, span.quote
    span.Clear()
    span.part, span.quote = part, quote
    wanted = normalized(quote)
    if not wanted:
        return
    for index, source in enumerate(sources.get(part, ())):
        if (place := _place(wanted, source)) is not None:
            span.found, span.index, (span.start, span.end) = True, index, place
            return
        # Judges see invisible characters and control tokens as code points.
        shown, escaped = visible(source)
        if escaped and wanted in normalized(shown):
            span.found, span.index = True, index
            return


def normalized(text: str) -> str:
    """A text in the form that quotes are compared in."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _place(wanted: str, source: str) -> tuple[int, int] | None:
    """The place of normalized words in a text, in code points. None: they are not in it."""
    start = source.find(wanted)
    if start >= 0:
        return start, start + len(wanted)
    if wanted not in normalized(source):
        return None
    characters: list[str] = []
    places: list[tuple[int, int]] = []
    for begin, end in _clusters(source):
        for character in unicodedata.normalize("NFKC", source[begin:end]):
            if character.isspace():
                if not characters or characters[-1] == " ":
                    continue
                character = " "
            characters.append(character)
            places.append((begin, end))
    start = "".join(characters).find(wanted)
    # Normalization of the parts may differ from that of the whole where scripts compose across clusters.
    return None if start < 0 else (places[start][0], places[start + len(wanted) - 1][1])


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
