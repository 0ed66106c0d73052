"""Writes the events of a script and their order (proScript, section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.generation.v1 import authoring_graphs_pb2 as pb
from dramaturg.api.graph.v1.script_graph_pb2 import Event, ScriptGraph
from dramaturg.judge.answers import UnclearAnswerError
from dramaturg.judge.fence import fence
from dramaturg.judge.llm import ANSWER_PLACEHOLDER
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.shapes import ListOf, Number, Record, Text
from dramaturg.service import threads
from services.generation.author import Author
from services.generation.edges.answers import (
    EDGES,
    WrittenGraph,
    read_edges,
    read_written_graph,
    scenario_excerpt,
)

_MAX_EVENTS, _MAX_TEXT = 5000, 20_000
"""The maximum number of events of a graph, and of characters of an event (``graph.v1.ScriptGraph``)."""
_MAX_NUMBER = 1_000_000


class ScriptGraphForm:
    """Numbered events, then their edges."""

    name = "script_graph"
    shape = Record(
        {
            "idea": Text("how this is usually done, and what can be done side by side", optional=True),
            "events": ListOf(
                Record(
                    {
                        "number": Number("1 for the first, 2 for the second, and so on"),
                        "event": Text("what happens, as a short verb phrase"),
                    }
                )
            ),
            "edges": EDGES,
        }
    )

    def parse(self, value: Any) -> WrittenGraph:
        """Reads a graph. Blank events and events with a repeated number are dropped and reported.

        Raises:
            UnclearAnswerError: The graph has no events.
        """
        members = value if isinstance(value, Mapping) else {}
        listed, edges = members.get("events"), members.get("edges")
        if not isinstance(listed, list) or not isinstance(edges, list):
            raise UnclearAnswerError("the answer is no graph")
        if len(listed) > _MAX_EVENTS:
            raise UnclearAnswerError(f"the graph has over {_MAX_EVENTS} events")
        events: dict[int, Event] = {}
        dropped: list[str] = []
        for entry in listed:
            number, text = _read_event(entry)
            if number is None or not text or len(text) > _MAX_TEXT:
                dropped.append(
                    f"event {number}: it has no number, is blank, or has over {_MAX_TEXT} characters"
                )
            elif number in events:
                dropped.append(f"event {number}, {text!r}: another event has this number")
            else:
                events[number] = Event(id=str(number), text=text)
        if not events:
            raise UnclearAnswerError("the graph has no events")
        read = read_edges(edges, {number: event.id for number, event in events.items()})
        return WrittenGraph(list(events.values()), read.edges, dropped + read.dropped)


def _read_event(entry: Any) -> tuple[int | None, str]:
    members = entry if isinstance(entry, Mapping) else {}
    number, text = members.get("number"), members.get("event")
    is_number = isinstance(number, int) and not isinstance(number, bool) and abs(number) < _MAX_NUMBER
    return number if is_number else None, text.strip() if isinstance(text, str) else ""


class ScriptGraphWriter:
    """Writes graphs with a model.

    Args:
        author: Asks the model.
        library: The prompts.
    """

    def __init__(self, author: Author, library: PromptLibrary) -> None:
        self._author = author
        self._prompt = library.load(
            "write_script_graph",
            fixed=(ANSWER_PLACEHOLDER,),
            content=("scenario", "first_event", "event_count"),
            parts=("any_number", "decided"),
        )

    async def write(self, request: pb.WriteScriptGraphRequest) -> pb.WriteScriptGraphResponse:
        """Writes one graph. The number of events may differ from the requested one.

        An answer that has not the JSON form, twice, is read in any notation.

        Raises:
            ServiceError: The model gives no answer.
        """
        values = {
            "scenario": scenario_excerpt(request.scenario).text,
            "first_event": fence("first event", request.first_event, limit=_MAX_TEXT).text
            if request.first_event.strip()
            else self._prompt.parts["decided"],
            "event_count": str(request.event_count)
            if request.event_count
            else self._prompt.parts["any_number"],
        }
        answer = await self._author.asker.ask(self._prompt, values, ScriptGraphForm(), request.options)
        response = pb.WriteScriptGraphResponse(provenance=answer.provenance)
        written = answer.value
        if (
            answer.abstention is not None
            and answer.abstention.reason == verdict_pb2.ABSTAIN_REASON_UNPARSABLE
        ):
            text = answer.completion.text
            written = await threads.parse(len(text), read_written_graph, text)
        if written is None:
            if answer.abstention is not None:
                response.abstain_reason = answer.abstention.reason
        else:
            events, edges, dropped = written
            response.graph.CopyFrom(ScriptGraph(scenario=request.scenario, events=events, edges=edges))
            response.dropped.extend(dropped)
        return response
