"""A graph that was read from a text, before anything is computed on it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field


class TooLargeError(ValueError):
    """The input exceeds a limit.

    Attributes:
        what: The limited quantity, e.g. "events".
        limit: The maximum.
        actual: The actual number, or a lower bound if counting stopped early.
    """

    def __init__(self, what: str, *, limit: int, actual: int) -> None:
        super().__init__(f"{actual} {what}; at most {limit} are supported")
        self.what = what
        self.limit = limit
        self.actual = actual


@dataclass
class ReadEvent:
    """An event of a text."""

    text: str = ""
    """Its text, possibly empty."""
    minutes: float | None = None
    """Its typical duration. None: it is not known."""
    declared: bool = True
    """Whether the text declares it. False: only edges name it."""


@dataclass
class ReadGraph:
    """Events by id and edges, in the order of the text."""

    scenario: str = ""
    events: dict[str, ReadEvent] = field(default_factory=dict)
    edges: dict[tuple[str, str], None] = field(default_factory=dict)

    def has_declared(self, event: str) -> bool:
        """Whether the text declares an event of this id."""
        return event in self.events and self.events[event].declared


def normalise(text: str) -> str:
    """NFKC, case folded, white space collapsed, final full stops and semicolons left out."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split()).rstrip(".; ")
