"""Collects measured graphs as counts for ScoreEdges. It keeps numbers only."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dramaturg.api.evaluation.v1.graphs_pb2 import (
    EVENT_MATCHING_UNSPECIFIED,
    EventMatching,
    GraphTask,
    MeasuredGraph,
)
from dramaturg.api.graph.v1.graph_service_pb2 import (
    DistanceMode,
    EditCounts,
    MeasureEditDistanceResponse,
    ScoreSummary,
)
from dramaturg.results.means import SumAccumulator
from dramaturg.results.names import abstention_name, reason_name, value_name

TEXT = "text"
"""The matching of events by equal texts or ids."""


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
    unclear_events: int = 0
    """How many events judges did not match clearly."""
    distances: defaultdict[tuple[str, str], DistanceSums] = field(
        default_factory=lambda: defaultdict(DistanceSums)
    )
    """The edit distances, by mode and matching."""

    def add(self, graphs: Iterable[MeasuredGraph]) -> None:
        """Counts the graphs of one sample."""
        distances: defaultdict[tuple[str, str], list[MeasureEditDistanceResponse]] = defaultdict(list)
        for measured in graphs:
            self._count(measured)
            for matching, distance in _distances(measured):
                distances[_mode_name(distance.mode), matching].append(distance)
        for key, some in distances.items():
            self.distances[key].add(some)

    def _count(self, measured: MeasuredGraph) -> None:
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
            self.unclear_events += len(measured.event_matches.unclear)


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
        return self.scores.macro.f1.value * scored / (scored + self.counts.abstentions.total())


def task_name(task: GraphTask.ValueType) -> str:
    """A task as it is shown, for example "predict-edges"."""
    return value_name(GraphTask, task).lower().replace("_", "-")


def _mode_name(mode: DistanceMode.ValueType) -> str:
    return value_name(DistanceMode, mode).lower().replace("_", "-")


def _matching_name(matching: EventMatching.ValueType) -> str:
    if matching == EVENT_MATCHING_UNSPECIFIED:  # events of the reference, equal by id
        return TEXT
    return value_name(EventMatching, matching).lower()


def _distances(measured: MeasuredGraph) -> Iterator[tuple[str, MeasureEditDistanceResponse]]:
    """The distances of a graph, each with its matching. An abstention has none."""
    if measured.HasField("distance"):
        yield _matching_name(measured.event_matches.matching), measured.distance
    if measured.HasField("embedding_distance"):
        yield _matching_name(measured.embedding_matches.matching), measured.embedding_distance
    if measured.HasField("text_distance"):
        yield TEXT, measured.text_distance


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
    upper: SumAccumulator = field(default_factory=SumAccumulator)
    """The upper bounds, sample by sample: the costs of the best mappings found."""
    edits: Mapping[str, SumAccumulator] = field(
        default_factory=lambda: {edit: SumAccumulator() for edit in EDITS}
    )
    """The edits of those mappings, by kind."""

    def add(self, distances: Sequence[MeasureEditDistanceResponse]) -> None:
        """Adds the distances of one sample."""
        self.measured += len(distances)
        self.proven += sum(one.proven for one in distances)
        self.edits_proven += sum(one.edits_proven for one in distances)
        self.lower += sum(one.lower_bound for one in distances)
        self.upper.add_values([one.upper_bound for one in distances])
        for edit, sums in self.edits.items():
            sums.add_values([getattr(one.edits, edit) for one in distances])
