"""The usage of each model under test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dramaturg.api.common.v1.provenance_pb2 import Provenance, Usage
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.judge.usage import total_usage


def usage_by_model(samples: Iterable[RunSample]) -> Mapping[str, Usage]:
    """The usage of samples for each model.

    Excludes usage that models share: gold answers, roles, comparisons.
    """
    spent: dict[str, list[Usage]] = {}
    for sample in samples:
        for model, provenance in _usages(sample):
            spent.setdefault(model, []).append(provenance.usage)
    return {model: total_usage(usages) for model, usages in spent.items()}


def _usages(sample: RunSample) -> Iterator[tuple[str, Provenance]]:
    for candidate in sample.scripts.candidates:
        yield from ((candidate.model, said.assessment.provenance) for said in candidate.assessments)
    for graph in sample.graphs.graphs:
        yield from ((graph.model, provenance) for provenance in graph.provenances)
    yield from ((choice.model, choice.provenance) for choice in sample.decision.choices)
    dialogue = sample.dialogue
    yield from ((reply.model, reply.provenance) for reply in dialogue.replies)
    yield from ((rated.model, rated.rating.provenance) for rated in dialogue.ratings)
    yield from ((scored.model, scored.provenance) for scored in dialogue.scores)
