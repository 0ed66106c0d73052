"""Events as shown to a model: by numbers that do not depend on their order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from dramaturg.api.graph.v1.script_graph_pb2 import Event
from dramaturg.judge.excerpts import Excerpt
from dramaturg.judge.fence import fence, fence_items

_LONGEST_SCENARIO = 10_000
_LONGEST_EVENTS = 200_000


@dataclass(frozen=True)
class NumberedEvents:
    """Events in the order shown, numbered from 1."""

    events: tuple[Event, ...]

    @classmethod
    def of(cls, scenario: str, events: Iterable[Event]) -> NumberedEvents:
        """Orders events by a hash of scenario and text.

        The ids and the order in the request, which may reveal the answer, do not reach the model. Equal sets
        of events make equal questions, so the ledger answers repeats.
        """
        return cls(tuple(sorted(events, key=lambda event: _key(scenario, event.text))))

    @property
    def by_number(self) -> dict[int, Event]:
        """The events by the numbers with which they are shown."""
        return dict(enumerate(self.events, start=1))

    @property
    def ids(self) -> dict[int, str]:
        return {number: event.id for number, event in enumerate(self.events, start=1)}

    @property
    def excerpt(self) -> Excerpt:
        """The numbered texts as shown in the prompt."""
        texts = [event.text for event in self.events]
        return Excerpt((fence_items("events", "Event", texts, limit=_LONGEST_EVENTS),))


def scenario_excerpt(scenario: str) -> Excerpt:
    """The scenario as shown in the prompt."""
    return Excerpt((fence("scenario", scenario, limit=_LONGEST_SCENARIO),))


def _key(scenario: str, text: str) -> str:
    return hashlib.sha256(f"{len(scenario)}\n{scenario}\n{text}".encode()).hexdigest()
