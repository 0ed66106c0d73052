"""The counts of an evaluation of graphs, and what is worked out from them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1.graphs_pb2 import MeasuredGraph
from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from gateway.evaluations.graphs.summary import EDITS, Counts, DistanceSums, Figures


def measured(**fields: Any) -> MeasuredGraph:
    return MeasuredGraph(**{"model": "m", "graph": ScriptGraph(), **fields})


def abstained(reason: Any = verdict_pb2.ABSTAIN_REASON_REFUSED) -> MeasuredGraph:
    return MeasuredGraph(model="m", abstain_reason=reason)


def distance(lower: int, upper: int, **edits: int) -> pb.MeasureEditDistanceResponse:
    return pb.MeasureEditDistanceResponse(
        distance=upper,
        lower_bound=lower,
        upper_bound=upper,
        proven=lower == upper,
        edits=pb.EditCounts(**edits),
        mode=pb.DISTANCE_MODE_PROSCRIPT,
    )


def test_every_graph_is_counted_where_it_belongs() -> None:
    counts = Counts()
    cyclic = pb.GraphReport(acyclic=False)
    score = pb.EdgeScore(id="x", counts=pb.EdgeCounts(predicted=2, reference=3, shared=1), unreduced=True)
    removed = [pb.PairProbability(source_id="a", target_id="b", probability=0.6)]
    for one in (
        measured(report=cyclic, score=score, removed=removed),
        measured(report=pb.GraphReport(acyclic=True), dropped=["x"]),
        measured(failures=["The graph is not checked."]),
        abstained(verdict_pb2.ABSTAIN_REASON_TIMED_OUT),
    ):
        counts.add([one])
    assert counts.abstentions == {"TIMED_OUT": 1}
    assert (counts.graphs, counts.checked, counts.cyclic, counts.removed_edges) == (4, 2, 1, 1)
    assert (counts.dropped, counts.unreduced, counts.unmeasured) == (1, 1, 1)


def test_distances_have_bounds_where_they_are_not_proven() -> None:
    sums = DistanceSums()
    sums.add([distance(2, 2, inserted_events=1, inserted_edges=1), distance(1, 4, replaced_events=4)])
    assert (sums.measured, sums.proven, sums.lower, sums.upper.mean()) == (2, 1, 3, 3)
    assert sums.edits["replaced_events"].mean() == 2


def test_the_distances_of_a_sample_are_added_together() -> None:
    counts = Counts()
    counts.add([measured(distance=distance(2, 2)), measured(distance=distance(4, 4)), abstained()])
    counts.add([measured(distance=distance(3, 3))])
    (sums,) = counts.distances.values()
    assert (sums.measured, sums.upper.samples, sums.upper.squared_totals) == (3, 2, 36 + 9)


@given(st.lists(st.tuples(*(st.integers(0, 9) for _ in EDITS)), min_size=1))
def test_the_edits_add_up_to_the_distances(rows: list[tuple[int, ...]]) -> None:
    sums = DistanceSums()
    for row in rows:
        sums.add([distance(sum(row), sum(row), **dict(zip(EDITS, row, strict=True)))])
    assert sum(one.total for one in sums.edits.values()) == sums.upper.total == sums.lower


@given(st.integers(1, 50), st.integers(0, 50), st.floats(0, 1))
def test_abstentions_count_as_zero_in_the_second_f1(scored: int, missing: int, f1: float) -> None:
    counts = Counts()
    for _ in range(missing):
        counts.add([abstained()])
    scores = pb.ScoreSummary(pair_count=scored, macro=pb.EdgeEstimates(f1=Estimate(value=f1)))
    mean = Figures(counts, scores).f1_with_abstentions
    assert mean == pytest.approx(sum([f1] * scored + [0.0] * missing) / (scored + missing))
