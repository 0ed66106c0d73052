"""EdgeService: validates requests beyond the contract limits, predicts edges and signs the provenance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dramaturg.api.generation.v1 import edge_service_pb2 as pb
from dramaturg.api.generation.v1 import edge_service_pb2_grpc as pb_grpc
from dramaturg.api.graph.v1.script_graph_pb2 import Event
from dramaturg.graphs.parsing.builder import MAX_ID_LENGTH, MAX_TEXT_LENGTH
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.service.errors import Violation, invalid_fields
from services.generation.author import Author, Signature
from services.generation.edges.prediction import EndToEndPredictor, PairwisePredictor

DESCRIPTOR = pb.DESCRIPTOR.services_by_name["EdgeService"]
NAME = "llm-edges"
"""The implementation's name."""


class EdgeServicer(pb_grpc.EdgeServiceServicer):
    """Predicts edges with language models.

    Args:
        author: Asks the models.
        library: The prompts.
        version: The version in the provenance of answers.
    """

    def __init__(self, author: Author, library: PromptLibrary, *, version: str) -> None:
        end_to_end, pairwise = EndToEndPredictor(author, library), PairwisePredictor(author, library)
        self._predict = {
            pb.EDGE_METHOD_UNSPECIFIED: end_to_end.predict,
            pb.EDGE_METHOD_END_TO_END: end_to_end.predict,
            pb.EDGE_METHOD_PAIRWISE: pairwise.predict,
        }
        self._signature = Signature(NAME, version, DESCRIPTOR.full_name)

    async def PredictEdges(self, request: pb.PredictEdgesRequest, context: Any) -> pb.PredictEdgesResponse:
        """Predicts the order of events."""
        del context
        violations = list(_violations(request.events))
        if violations:
            raise invalid_fields(violations)
        return await self._signature.under(self._predict[request.method](request))


def _violations(events: Sequence[Event]) -> Iterator[Violation]:
    seen: set[str] = set()
    for index, event in enumerate(events):
        if not event.id:
            yield Violation(f"events[{index}].id", "is required")
        elif event.id in seen:
            yield Violation(f"events[{index}].id", f"is {event.id!r}, like that of an event before it")
        elif len(event.id) > MAX_ID_LENGTH:
            yield Violation(f"events[{index}].id", f"has {len(event.id)} characters; at most {MAX_ID_LENGTH}")
        if len(event.text) > MAX_TEXT_LENGTH:
            yield Violation(
                f"events[{index}].text", f"has {len(event.text)} characters; at most {MAX_TEXT_LENGTH}"
            )
        seen.add(event.id)
