"""Leaderboards, exports and reports of runs. All functions block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Protocol

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.results.leaderboard import DEFAULT_MINIMUM_COVERAGE, leaderboard, primary_measure
from dramaturg.service.errors import ServiceError, invalid
from gateway.evaluations.kinds import run_kind
from gateway.runs.records import ACTIVE, RunRecord
from gateway.runs.results.exports import (
    ExtraMissingError,
    as_csv,
    as_json_lines,
    as_parquet,
    samples_as_json_lines,
)
from gateway.runs.results.report import write_report
from gateway.runs.store.base import RunStore

_PAGE_SIZE = 50


class SampleReader(Protocol):
    """Reads samples one by one, as a ``Summarizer`` does."""

    def add(self, sample: RunSample, /) -> None:
        """Adds a sample."""


def rank(run: RunRecord, request: pb.GetLeaderboardRequest, store: RunStore) -> pb.GetLeaderboardResponse:
    """The models of a run, ranked.

    Raises:
        ServiceError: INVALID_ARGUMENT: the run has results, but none of the measure.
    """
    kind, measure = run_kind(run.spec).results, request.measure
    minimum = request.minimum_coverage if request.HasField("minimum_coverage") else DEFAULT_MINIMUM_COVERAGE
    sums = [*store.model_sums(run.id)]
    known = sorted({one.measure for one in sums})
    if measure and known and measure not in known:
        raise invalid("measure", f"is {measure!r}; the run has {', '.join(known)}")
    if not kind.primary_measure:
        sums.extend(store.model_sums(run.id, together=True))
    entries = leaderboard(sums, kind.name, measure, minimum_coverage=minimum)
    usage = store.model_usage(run.id)
    for entry in entries:
        if entry.model in usage:
            entry.usage.CopyFrom(usage[entry.model])
    return pb.GetLeaderboardResponse(
        entries=entries, measure=measure or primary_measure(kind.name, known), final=run.state not in ACTIVE
    )


def export(run_id: str, request: pb.ExportResultsRequest, store: RunStore) -> Iterator[bytes]:
    """The run's judgements as a file.

    Raises:
        ServiceError: Immediately: FAILED_PRECONDITION: the library of the format is not installed;
            INVALID_ARGUMENT: a filter with whole samples.
    """
    if request.format == pb.EXPORT_FORMAT_SAMPLES_JSONL:
        if request.filter.ByteSize():
            raise invalid("filter", "must be empty for whole samples")
        return samples_as_json_lines(all_samples(run_id, store))
    results = store.iterate_results(run_id, request.filter)
    if request.format == pb.EXPORT_FORMAT_CSV:
        return as_csv(results, store.tag_names(run_id))
    if request.format == pb.EXPORT_FORMAT_PARQUET:
        try:
            return as_parquet(results, store.tag_names(run_id))
        except ExtraMissingError as error:
            raise ServiceError(
                grpc.StatusCode.FAILED_PRECONDITION,
                error_reason_pb2.ERROR_REASON_NOT_IMPLEMENTED,
                f"this gateway cannot write the format: {error}",
            ) from error
    return as_json_lines(results)


def report(
    run: RunRecord, summary: Summary, notes: Sequence[str], limit: int, store: RunStore
) -> Iterator[bytes]:
    """The report of a run, with at most ``limit`` samples one by one; 0: the default of the report."""
    return write_report(run, summary, notes, lambda: _sample_pages(run.id, store), limit)


def add_samples(run_id: str, reader: SampleReader, store: RunStore) -> Iterator[None]:
    """Adds all samples of a run to a summary or another reader, a page at each step.

    Raises:
        ServiceError: INVALID_ARGUMENT: the options yield too many groups.
    """
    for page in _sample_pages(run_id, store):
        for sample in page:
            reader.add(sample)
        yield


def all_samples(run_id: str, store: RunStore) -> Iterator[RunSample]:
    """All samples, read in bounded pages."""
    return chain.from_iterable(_sample_pages(run_id, store))


def _sample_pages(run_id: str, store: RunStore) -> Iterator[Sequence[RunSample]]:
    after = -1
    while page := store.list_samples(run_id, after=after, limit=_PAGE_SIZE):
        yield page
        after = page[-1].index
