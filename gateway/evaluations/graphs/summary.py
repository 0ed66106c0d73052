"""Figures of script graphs (proScript, Tables 1 and 2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from dramaturg.api.evaluation.v1.graphs_pb2 import GraphsResult
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import DistanceFigures, GraphFigures, Summary, SummaryOptions
from dramaturg.api.graph.v1.graph_service_pb2 import EdgeScore, ScoreEdgesRequest, ScoreSummary
from dramaturg.summaries.graphs import Counts, DistanceSums, Figures, Setup, task_name
from gateway.evaluations.statistics import Statistics
from gateway.evaluations.summary import KindFigures, KindSummary

MAX_SCORES = 200_000
"""The most scores of one request (``graph.v1.ScoreEdgesRequest``)."""


class GraphsKindSummary(KindSummary):
    def parts(self, sample: RunSample) -> Iterator[tuple[Mapping[str, str], GraphsResult]]:
        yield {**sample.graphs.tags, **sample.tags}, sample.graphs

    def figures(self, options: SummaryOptions) -> GraphsFigures:
        del options
        return GraphsFigures()


class GraphsFigures(KindFigures):
    """Graphs by setup: task and model."""

    def __init__(self) -> None:
        self._counts: defaultdict[Setup, Counts] = defaultdict(Counts)
        self._scores: defaultdict[Setup, list[EdgeScore]] = defaultdict(list)

    def add(self, parts: Sequence[GraphsResult]) -> None:
        for result in parts:
            for measured in result.graphs:
                setup = Setup(task_name(result.task), measured.model)
                self._counts[setup].add(measured)
                if measured.HasField("score"):
                    self._scores[setup].append(EdgeScore(counts=measured.score.counts))

    def write(self, tags: Mapping[str, str], summary: Summary, statistics: Statistics) -> None:
        for setup, counts in sorted(self._counts.items()):
            edges = self._edges(setup, statistics)
            figures = GraphFigures(
                tags=tags,
                task=setup.task,
                model=setup.model,
                graph_count=counts.graphs,
                abstentions_by_reason=counts.abstentions,
                checked_count=counts.checked,
                cyclic_count=counts.cyclic,
                removed_edge_count=counts.removed_edges,
                dropped_count=counts.dropped,
                unreduced_count=counts.unreduced,
                unmeasured_count=counts.unmeasured,
                edges=edges,
                macro_f1_abstentions_zero=Figures(counts, edges).f1_with_abstentions,
                distances=[_distances(*key, sums) for key, sums in sorted(counts.distances.items())],
                event_count_mismatch_count=counts.event_count_mismatches,
                unclear_event_count=counts.unclear_events,
            )
            summary.graphs.figures.append(figures)

    def _edges(self, setup: Setup, statistics: Statistics) -> ScoreSummary | None:
        scores = self._scores.get(setup)
        if not scores:
            return None
        if len(scores) > MAX_SCORES:
            statistics.note(f"{len(scores)} scores of {setup.model!r} exceed {MAX_SCORES}: they have no mean")
            return None
        request = ScoreEdgesRequest(scored=scores, omit_scores=True)
        response = statistics.graph("ScoreEdges", request)
        return None if response is None else response.summary


def _distances(mode: str, matching: str, sums: DistanceSums) -> DistanceFigures:
    described = sums.describe()
    return DistanceFigures(
        mode=mode,
        matching=matching,
        measured_count=sums.measured,
        proven_count=sums.proven,
        edits_proven_count=sums.edits_proven,
        mean=described["mean"],
        mean_lower_bound=described["mean_lower_bound"],
        mean_edits=described["mean_edits"],
    )
