"""Flat judgements of a sample: the rows of tables, sums and exports."""

from __future__ import annotations

from collections.abc import Iterator

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.kinds import sample_kind
from dramaturg.results.kind import Judgement


def flatten(sample: RunSample, *, texts: bool = True) -> list[RunResult]:
    """The judgements of a sample, in the order of its result; none if the sample failed.

    Args:
        sample: The sample.
        texts: Whether rationales, findings and provenance are needed. If False, those of scripts (the bulk of
            the data) are not copied; other kinds may still have them.
    """
    kind = sample_kind(sample)
    if kind is None:
        return []
    flat = list(kind.results.rows(getattr(sample, kind.results.name), texts))
    for row in flat:
        row.sample_index = sample.index
        row.sample_id = sample.sample_id
        row.tags.update(sample.tags)
    return flat


def judgements(sample: RunSample) -> Iterator[Judgement]:
    """The judgements of a sample that are compared with other runs or labels; none if the sample failed."""
    kind = sample_kind(sample)
    if kind is None or kind.results.comparability is None:
        return
    result = getattr(sample, kind.results.name)
    yield from kind.results.comparability.judgements(result, kind.results.rows(result, False))
