"""Matches written events with those of the reference by the meaning of their texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dramaturg.api.evaluation.v1.graphs_pb2 import EVENT_MATCHING_EMBEDDINGS, EventMatches
from dramaturg.api.graph.v1.script_graph_pb2 import Event
from gateway.evaluations.calls import embed_by
from gateway.evaluations.scope import EvaluationScope
from gateway.judges.selection import JudgeAssignment

DEFAULT_THRESHOLD = 0.75
"""The default of ``EvaluateGraphsRequest.match_threshold``; docs/research/graphs.md has its measurement."""

MAX_EVENTS = 100
"""The most events of a graph that are matched by meaning. Distances have a lower limit (``graph.v1``)."""

Floats = NDArray[np.float64]


async def match_events(
    assignment: JudgeAssignment,
    scope: EvaluationScope,
    events: Sequence[Event],
    reference: Sequence[Event],
    threshold: float,
) -> EventMatches | str:
    """Matches events one to one. Events without text match none.

    Args:
        assignment: The embedding service.
        scope: What the calls of the evaluation share.
        events: The events of the model.
        reference: The events of the reference.
        threshold: The least cosine of two matched events.

    Returns:
        The matches; or the problem, a predicate whose subject is the service.
    """
    matches = EventMatches(
        matching=EVENT_MATCHING_EMBEDDINGS, threshold=threshold, service=assignment.judge.name
    )
    mine = [event for event in events if event.text.strip()]
    theirs = [event for event in reference if event.text.strip()]
    if not (mine and theirs):
        return matches
    if max(len(mine), len(theirs)) > MAX_EVENTS:
        return f"was not called: more than {MAX_EVENTS} events are not matched by meaning"
    found = await embed_by(assignment, scope, [event.text for event in (*mine, *theirs)])
    if found.failure:
        return found.failure
    vectors = np.array(found.vectors, np.float64)
    matches.model, matches.weights_sha256 = found.model, found.weights_sha256
    similarities = vectors[: len(mine)] @ vectors[len(mine) :].T
    for row, column in assign(similarities, threshold):
        matches.matches.add(
            event_id=mine[row].id,
            reference_id=theirs[column].id,
            similarity=similarities[row, column],
        )
    return matches


def assign(similarities: Floats, threshold: float) -> list[tuple[int, int]]:
    """The one-to-one pairs with the largest sum of similarities, among pairs that reach the threshold.

    Args:
        similarities: Events of the model x events of the reference.
        threshold: The least similarity of a pair.

    Returns:
        Rows and columns, by row.
    """
    # Cosines are at least -1, so that each allowed pair adds to the sum. Rounding must not part equal texts.
    allowed = similarities >= threshold - 1e-6
    costs = np.where(allowed, -similarities - 2.0, 0.0)
    flipped = costs.shape[0] > costs.shape[1]
    columns = _cheapest_columns(costs.T if flipped else costs)
    pairs = [(column, row) if flipped else (row, column) for row, column in enumerate(columns)]
    return sorted((row, column) for row, column in pairs if allowed[row, column])


def _cheapest_columns(costs: Floats) -> list[int]:
    """The column of each row in the assignment with the least sum of costs.

    The Hungarian method with potentials, one shortest augmenting path for each row (Jonker and Volgenant
    1987). SciPy has it too; its 143 MB are not part of the gateway's image.

    Args:
        costs: Rows x columns, with at most as many rows as columns.
    """
    row_count, column_count = costs.shape
    row_potentials = np.zeros(row_count)
    # Column 0 stands for the row that is being assigned; real columns are counted from 1.
    column_potentials = np.zeros(column_count + 1)
    rows = np.full(column_count + 1, -1)
    for row in range(row_count):
        rows[0], column = row, 0
        slack = np.full(column_count + 1, np.inf)
        before = np.zeros(column_count + 1, np.int64)
        reached = np.zeros(column_count + 1, np.bool_)
        while rows[column] >= 0:
            reached[column] = True
            reduced = costs[rows[column]] - row_potentials[rows[column]] - column_potentials[1:]
            closer = np.concatenate(([False], ~reached[1:] & (reduced < slack[1:])))
            slack[closer], before[closer] = reduced[closer[1:]], column
            column = int(np.argmin(np.where(reached, np.inf, slack)))
            step = slack[column]
            row_potentials[rows[reached]] += step
            column_potentials[reached] -= step
            slack[~reached] -= step
        while column:
            rows[column], column = rows[before[column]], int(before[column])
    assigned = np.zeros(row_count, np.int64)
    assigned[rows[1:][rows[1:] >= 0]] = np.flatnonzero(rows[1:] >= 0)
    return [int(column) for column in assigned]
