"""The worst failures of results."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_ABSTAIN, OUTCOME_FAIL, OUTCOME_PASS
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.results.rows import flatten

SHOWN = 3
"""The most failures that are shown."""


class Failure(NamedTuple):
    """A candidate that failed criteria."""

    sample: str
    """The id of its sample, else the sample's number, from 1."""
    candidate: str
    """Its id, else its model. May be empty."""
    failed: int
    """The number of criteria that it failed."""
    decided: int
    """The number of criteria that it passed or failed."""
    measure: str
    """The first of those that it failed."""
    reason: str
    """Why, as the judge said. May be empty."""


def worst_failures(samples: Iterable[RunSample], count: int = SHOWN) -> Sequence[Failure]:
    """The candidates that failed most criteria, then the largest share of them, then the first ones.

    Args:
        samples: The samples, of which one is in memory at a time.
        count: The most candidates.
    """
    failures = (failure for sample in samples for failure in _failures(flatten(sample)))
    return heapq.nlargest(count, failures, key=lambda one: (one.failed, one.failed / one.decided))


def _failures(rows: Iterable[RunResult]) -> Iterable[Failure]:
    """The failures of a sample."""
    by_candidate: dict[str, list[RunResult]] = {}
    for row in rows:
        if row.outcome in (OUTCOME_PASS, OUTCOME_FAIL, OUTCOME_ABSTAIN):
            by_candidate.setdefault(row.candidate_id or row.model, []).append(row)
    for candidate, judged in by_candidate.items():
        failed = [row for row in judged if row.outcome == OUTCOME_FAIL]
        if failed:
            first = failed[0]
            decided = len(failed) + sum(row.outcome == OUTCOME_PASS for row in judged)
            sample = first.sample_id or f"sample {first.sample_index + 1}"
            yield Failure(sample, candidate, len(failed), decided, first.measure, first.rationale)
