"""When two events have the same label."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from services.graph.model import ScriptGraph, text_of

Matrix = tuple[tuple[bool, ...], ...]
"""For each event of the first graph: whether each event of the second has the same label."""


def normalise(text: str) -> str:
    """NFKC, case folded, white space collapsed, final full stops and semicolons left out."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split()).rstrip(".; ")


def equal_texts(first: ScriptGraph, second: ScriptGraph) -> Matrix:
    """Equal where the normalised texts are; an event without text equals only its namesake without text."""
    return _equal_keys(_text_keys(first), _text_keys(second))


def equal_ids(first: ScriptGraph, second: ScriptGraph) -> Matrix:
    """Equal where the ids are."""
    return _equal_keys(list(first), list(second))


def given_pairs(first: ScriptGraph, second: ScriptGraph, pairs: Iterable[tuple[str, str]]) -> Matrix:
    """Equal where ``pairs`` says so; the relation need not be transitive."""
    equal = set(pairs)
    return tuple(tuple((one, other) in equal for other in second) for one in first)


def _text_keys(graph: ScriptGraph) -> list[tuple[bool, str]]:
    texts = {event: normalise(text_of(graph, event)) for event in graph}
    return [(bool(text), text or event) for event, text in texts.items()]


def _equal_keys(first: Iterable[object], second: Iterable[object]) -> Matrix:
    others = list(second)
    return tuple(tuple(one == other for other in others) for one in first)
