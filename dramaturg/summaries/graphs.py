"""Collects measured graphs as counts for ScoreEdges. It keeps numbers only."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dramaturg.api.evaluation.v1.graphs_pb2 import (
    EVENT_MATCHING_EMBEDDINGS,
    EventMatching,
    GraphsResult,
    GraphTask,
    MeasuredGraph,
)
from dramaturg.api.graph.v1.graph_service_pb2 import (
    DistanceMode,
    EdgeMeasures,
    EdgeScore,
    EditCounts,
    MeasureEditDistanceResponse,
    ScoreSummary,
)
from dramaturg.results.names import abstention_name, reason_name
from dramaturg.summaries.samples import SampleAggregator

GROUP = "group"
"""The tag under which scores carry the value that they are grouped by."""


TEXT = "text"
"""The matching of events by equal texts or ids."""
MEASURES = ("precision", "recall", "f1", "iou", "edge_difference", "extra_edges", "missing_edges")
"""The measures, in the order of the JSON."""


class Setup(NamedTuple):
    """What one model did."""

    task: str
    """"predict-edges", "generate" or "pipeline"."""
    model: str
    """The model. Empty: the default one."""


@dataclass
class Counts:
    """The counts of one setup, or of one group of it."""

    graphs: int = 0
    """How many graphs were wanted."""
    abstentions: Counter[str] = field(default_factory=Counter)
    """How many there are not, by reason."""
    failures: Counter[str] = field(default_factory=Counter)
    """The failures of the model to give a graph, by reason; their measures are those of an empty graph."""
    checked: int = 0
    """How many were checked."""
    cyclic: int = 0
    """How many of them have a cycle."""
    removed_edges: int = 0
    """How many edges were removed to break cycles."""
    dropped: int = 0
    """From how many answers something was left out."""
    unreduced: int = 0
    """How many were to be compared reduced and could not, because a graph has a cycle."""
    unmeasured: int = 0
    """How many graphs miss a measure that was wanted."""
    event_count_mismatches: int = 0
    """How many written graphs have another number of events than requested."""
    distances: defaultdict[tuple[str, str], DistanceSums] = field(
        default_factory=lambda: defaultdict(DistanceSums)
    )
    """The edit distances, by mode and matching."""

    def add(self, measured: MeasuredGraph) -> None:
        """Counts a graph."""
        self.graphs += 1
        self.dropped += bool(measured.dropped)
        if measured.failure_reason:
            self.failures[reason_name(measured.failure_reason)] += 1
        elif not measured.HasField("graph"):
            self.abstentions[abstention_name(measured.abstain_reason)] += 1
            return
        else:
            self.unmeasured += bool(measured.failures)
        self.removed_edges += len(measured.removed)
        if measured.HasField("report"):
            self.checked += 1
            self.cyclic += not measured.report.acyclic
        self.unreduced += measured.score.unreduced
        if measured.HasField("graph") and measured.requested_event_count:
            self.event_count_mismatches += measured.requested_event_count != len(measured.graph.events)
        if measured.HasField("distance"):
            matching = _matching_name(measured.event_matches.matching)
            self.distances[_mode_name(measured.distance.mode), matching].add(measured.distance)
        if measured.HasField("text_distance"):
            self.distances[_mode_name(measured.text_distance.mode), TEXT].add(measured.text_distance)

    def describe(self) -> dict[str, Any]:
        """The counts as JSON."""
        return {
            "graphs": self.graphs,
            "abstained": self.abstentions.total(),
            "abstentions": dict(sorted(self.abstentions.items())),
            "checked": self.checked,
            "cyclic": self.cyclic,
            "removed_edges": self.removed_edges,
            "dropped": self.dropped,
            "unreduced": self.unreduced,
            "unmeasured": self.unmeasured,
        }


class Figures(NamedTuple):
    """The figures of a setup, or of one group of it."""

    counts: Counts
    """The counts of its graphs."""
    scores: ScoreSummary | None
    """The scores of their edges. None: nothing was scored, or the scores are not summed up."""

    @property
    def f1_with_abstentions(self) -> float | None:
        """The macro F1 with each abstention as 0. None where there are no scores."""
        if self.scores is None:
            return None
        scored = self.scores.pair_count
        return self.scores.macro.f1 * scored / (scored + self.counts.abstentions.total())

    def describe(self) -> dict[str, Any]:
        """The figures as JSON; ``edges`` is null where there are no scores."""
        edges = None
        if self.scores is not None:
            edges = {
                "scored": self.scores.pair_count,
                "exact_matches": self.scores.exact_match_count,
                **averages_entry(self.scores),
                "macro_f1_abstentions_zero": self.f1_with_abstentions,
            }
        distances = {
            mode if matching == TEXT else f"{mode}, {matching}": sums.describe()
            for (mode, matching), sums in self.counts.distances.items()
        }
        return {**self.counts.describe(), "edges": edges, "distances": distances}


class GraphsAggregator(SampleAggregator[GraphsResult]):
    """The graphs of an evaluation.

    Args:
        group_by: The tag by whose values they are also counted. Empty: none.
    """

    def __init__(self, group_by: str = "") -> None:
        super().__init__()
        self.group_by = group_by
        self.counts: defaultdict[Setup, Counts] = defaultdict(Counts)
        self.groups: defaultdict[Setup, defaultdict[str, Counts]] = defaultdict(lambda: defaultdict(Counts))
        self.scores: defaultdict[Setup, list[EdgeScore]] = defaultdict(list)
        self.summaries: dict[Setup, ScoreSummary] = {}
        """The scores of each setup, summed up. Empty until they are."""
        self.group_summaries: dict[tuple[Setup, str], ScoreSummary] = {}
        """The same for each group."""
        self.missing_figures = ""
        """Why scores are not summed up. Empty: they are, or there are none."""

    def add(self, result: GraphsResult) -> None:
        """Counts a script."""
        super().add(result)
        value = result.tags.get(self.group_by, "") if self.group_by else ""
        for measured in result.graphs:
            setup = Setup(task_name(result.task), measured.model)
            self.counts[setup].add(measured)
            if self.group_by:
                self.groups[setup][value].add(measured)
            if measured.HasField("score"):
                score = measured.score
                self.scores[setup].append(EdgeScore(counts=score.counts, tags={GROUP: value}))

    def figures(self) -> Iterator[tuple[Setup, Figures]]:
        """The figures of each setup, in the order in which they came."""
        for setup, counts in self.counts.items():
            yield setup, Figures(counts, self.summaries.get(setup))

    def group_figures(self, setup: Setup) -> Iterator[tuple[str, Figures]]:
        """The figures of a setup's groups: numbers by size, then other values by name."""
        groups: Mapping[str, Counts] = self.groups.get(setup, {})
        for value in sorted(groups, key=_rank):
            yield value, Figures(groups[value], self.group_summaries.get((setup, value)))

    def summary(self) -> dict[str, Any]:
        """The counts and figures as ``--json`` prints them (documented in docs/cli.md)."""
        models = []
        for setup, figures in self.figures():
            entry = {**setup._asdict(), **figures.describe()}
            if self.group_by:
                groups = {value: group.describe() for value, group in self.group_figures(setup)}
                entry["by_tag"] = {self.group_by: groups}
            models.append(entry)
        return {**super().summary(), "models": models, "missing_figures": self.missing_figures}


def measures_entry(measures: EdgeMeasures) -> dict[str, float]:
    """The measures of edges by name."""
    return {measure: getattr(measures, measure) for measure in MEASURES}


def averages_entry(summary: ScoreSummary) -> dict[str, dict[str, float] | None]:
    """The measures over all pairs; ``None`` where there is nothing to average."""
    return {
        "macro": measures_entry(summary.macro) if summary.HasField("macro") else None,
        "micro": measures_entry(summary.micro) if summary.HasField("micro") else None,
    }


def task_name(task: GraphTask.ValueType) -> str:
    """A task as it is shown, for example "predict-edges"."""
    return GraphTask.Name(task).removeprefix("GRAPH_TASK_").lower().replace("_", "-")


def _mode_name(mode: DistanceMode.ValueType) -> str:
    return DistanceMode.Name(mode).removeprefix("DISTANCE_MODE_").lower().replace("_", "-")


def _matching_name(matching: EventMatching.ValueType) -> str:
    return "embeddings" if matching == EVENT_MATCHING_EMBEDDINGS else TEXT


def _rank(value: str) -> tuple[bool, float, str]:
    """Numbers by size, then other values by name."""
    return (False, int(value), "") if value.isdecimal() else (True, 0.0, value)


EDITS = tuple(member.name for member in EditCounts.DESCRIPTOR.fields)
"""The six kinds of edit."""


@dataclass
class DistanceSums:
    """The distances of many graphs, all in one mode."""

    measured: int = 0
    """How many there are."""
    proven: int = 0
    """How many of them are exact; of the others the bounds are known."""
    edits_proven: int = 0
    """Of how many the six counts are the only ones that the tie rule leaves."""
    lower: int = 0
    """The sum of the lower bounds."""
    upper: int = 0
    """The sum of the upper bounds: the costs of the best mappings found."""
    edits: Counter[str] = field(default_factory=Counter)
    """The edits of those mappings, by kind."""

    def add(self, distance: MeasureEditDistanceResponse) -> None:
        """Adds a distance."""
        self.measured += 1
        self.proven += distance.proven
        self.edits_proven += distance.edits_proven
        self.lower += distance.lower_bound
        self.upper += distance.upper_bound
        for edit in EDITS:
            self.edits[edit] += getattr(distance.edits, edit)

    def describe(self) -> dict[str, Any]:
        """The means as JSON: the true one lies between ``mean_lower_bound`` and ``mean``."""
        return {
            "measured": self.measured,
            "proven": self.proven,
            "edits_proven": self.edits_proven,
            "mean": self.upper / self.measured if self.measured else None,
            "mean_lower_bound": self.lower / self.measured if self.measured else None,
            "mean_edits": {
                edit: self.edits[edit] / self.measured if self.measured else None for edit in EDITS
            },
        }
