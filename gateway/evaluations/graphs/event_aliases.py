"""Aliases and an order of events that do not reveal their order in the script."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

from dramaturg.api.graph.v1.script_graph_pb2 import Event

_ALIAS = re.compile(r"event-[0-9a-f]{12}(?:-\d+)?")


class EventAliases:
    """Aliases of events, derived from a hash of scenario and text.

    Consecutive ids and the order of a list may reveal the order to be predicted. Equal sets of events get
    equal aliases, so equal requests share a completion.

    Args:
        scenario: The scenario of the script.
        events: The events; their ids are unique.
    """

    def __init__(self, scenario: str, events: Sequence[Event]) -> None:
        texts = Counter(event.text for event in events)
        # The id orders events of the same text alone.
        hashed = sorted(
            (
                _digest(scenario, event.text),
                _digest(scenario, event.id) if texts[event.text] > 1 else "",
                index,
            )
            for index, event in enumerate(events)
        )
        repeated: Counter[str] = Counter()
        self._events: dict[str, Event] = {}
        for digest, _, index in hashed:
            event = events[index]
            alias = f"event-{digest[:12]}"
            repeated[alias] += 1
            self._events[alias if repeated[alias] == 1 else f"{alias}-{repeated[alias]}"] = event

    @property
    def shown(self) -> list[Event]:
        """The events under their aliases, in the order of the aliases."""
        return [Event(id=alias, text=event.text) for alias, event in self._events.items()]

    def id_of(self, alias: str) -> str | None:
        """The id of the event with an alias; None for an unknown alias."""
        event = self._events.get(alias)
        return None if event is None else event.id

    def unmask(self, text: str) -> str:
        """Replaces the aliases in a text by ids."""
        return _ALIAS.sub(lambda match: self.id_of(match[0]) or match[0], text)


def _digest(scenario: str, text: str) -> str:
    return hashlib.sha256(f"{len(scenario)}\n{scenario}\n{text}".encode()).hexdigest()
