"""Predicts all edges in one answer (proScript, section 5.1, the end-to-end model)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.generation.v1 import edge_service_pb2 as pb
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.judge import text_pool
from dramaturg.judge.answers import UnclearAnswerError
from dramaturg.judge.llm import ANSWER_PLACEHOLDER, Question
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.shapes import Record, Text
from services.generation.author import Author, with_defaults
from services.generation.edges.graph_answers import read_edges_between
from services.generation.edges.numbered_events import NumberedEvents, scenario_excerpt
from services.generation.edges.parser import EDGES, ReadEdges, read_edges

_SHAPE = Record(
    {
        "reasoning": Text("what needs what, and what can happen side by side", optional=True),
        "edges": EDGES,
    }
)


@dataclass(frozen=True)
class EdgesForm:
    """The form of reasoning and edges."""

    ids: Mapping[int, str]
    """The events' ids by number."""

    @property
    def name(self) -> str:
        return "edges"

    @property
    def shape(self) -> Record:
        """Reasoning first."""
        return _SHAPE

    def parse(self, value: Any) -> ReadEdges:
        """Reads the edges. An empty list is valid: no event precedes another.

        Raises:
            UnclearAnswerError: There is no list of edges, or all listed edges are unusable.
        """
        entries = value.get("edges") if isinstance(value, Mapping) else None
        if not isinstance(entries, list):
            raise UnclearAnswerError("the answer has no edges")
        read = read_edges(entries, self.ids)
        if entries and not read.edges:
            raise UnclearAnswerError(f"no edge can be used: {'; '.join(read.dropped)}")
        return read


class EndToEndPredictor:
    """Predicts all edges with one question.

    Args:
        author: Asks the model.
        library: The prompts.
    """

    def __init__(self, author: Author, library: PromptLibrary) -> None:
        self._author = author
        self._prompt = library.load(
            "predict_edges", fixed=(ANSWER_PLACEHOLDER,), content=("scenario", "events")
        )

    async def predict(self, request: pb.PredictEdgesRequest) -> pb.PredictEdgesResponse:
        """Predicts the edges. An answer that has not the JSON form, twice, is read in any notation.

        Raises:
            ServiceError: The model's configuration fails every request.
        """
        numbered = NumberedEvents.of(request.scenario, request.events)
        shown = {"scenario": scenario_excerpt(request.scenario), "events": numbered.excerpt}
        question = Question(self._prompt, shown, EdgesForm(numbered.ids))
        options = with_defaults(request.options, temperature=0.0)
        answer = await self._author.asker.ask_or_abstain(question, options)
        response = pb.PredictEdgesResponse(provenance=answer.provenance, method=pb.EDGE_METHOD_END_TO_END)
        read = answer.value
        if (
            answer.abstention is not None
            and answer.abstention.reason == verdict_pb2.ABSTAIN_REASON_UNPARSABLE
        ):
            text, shown_events = answer.completion.text, numbered.by_number
            read = await text_pool.parse(len(text), read_edges_between, text, shown_events)
        if read is not None:
            response.dropped.extend(read.dropped)
            graph = ScriptGraph(scenario=request.scenario, events=request.events, edges=read.edges)
            response.graph.CopyFrom(graph)
        elif answer.abstention is not None:
            response.abstain_reason = answer.abstention.reason
            response.dropped.append(answer.abstention.explanation)
        return response
