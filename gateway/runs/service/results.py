"""Leaderboards, exports, summaries and reports of runs, as tasks of processes. All functions block."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from functools import wraps
from itertools import chain

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions
from dramaturg.database import StoreError
from dramaturg.report.groupings import GroupingFinder
from dramaturg.results.gold_answers import describe_missing
from dramaturg.results.leaderboard import DEFAULT_MINIMUM_COVERAGE, leaderboard, primary_measure
from dramaturg.service.errors import ServiceError, invalid
from gateway.evaluations.kinds import SUMMARIES, run_kind
from gateway.evaluations.statistics import Statistics
from gateway.evaluations.summary import Summarizer
from gateway.processes.process import Arguments, Ask, Task
from gateway.runs.records import ACTIVE, RunRecord
from gateway.runs.results import (
    ExtraMissingError,
    as_csv,
    as_json_lines,
    as_parquet,
    samples_as_json_lines,
    write_report,
)
from gateway.runs.store import RunStore
from gateway.runs.store_calls import store_unavailable

ONE_LOOK = (
    "The run goes on: intervals and p-values are for one look at it. "
    "CompareRuns with anytime has bounds that hold at all looks."
)
"""The notice of figures of a run that has not ended."""

_PAGE_SIZE = 50


def reads_store(task: Task[Arguments]) -> Task[Arguments]:
    """Maps the errors of the store in a task."""

    @wraps(task)
    def run(ask: Ask, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Iterator[bytes]:
        try:
            yield from task(ask, *args, **kwargs)
        except StoreError as error:
            raise store_unavailable(error) from error

    return run


@reads_store
def rank(ask: Ask, run: RunRecord, request: pb.GetLeaderboardRequest, store: RunStore) -> Iterator[bytes]:
    """The models of a run, ranked, as a GetLeaderboardResponse.

    Raises:
        ServiceError: INVALID_ARGUMENT: the run has results, but none of the measure.
    """
    del ask
    kind, measure = run_kind(run.spec).results, request.measure
    minimum = request.minimum_coverage if request.HasField("minimum_coverage") else DEFAULT_MINIMUM_COVERAGE
    sums = [*store.results.model_sums(run.id)]
    known = sorted({one.measure for one in sums})
    if measure and known and measure not in known:
        raise invalid("measure", f"is {measure!r}; the run has {', '.join(known)}")
    if not kind.primary_measure:
        sums.extend(store.results.model_sums(run.id, together=True))
    entries = leaderboard(sums, kind.name, measure, minimum_coverage=minimum)
    usage = store.results.model_usage(run.id)
    for entry in entries:
        if entry.model in usage:
            entry.usage.CopyFrom(usage[entry.model])
    missing = describe_missing(run.counts.gold_answers)
    response = pb.GetLeaderboardResponse(
        entries=entries,
        measure=measure or primary_measure(kind.name, known),
        final=run.state not in ACTIVE,
        notices=[missing] if missing else [],
    )
    yield response.SerializeToString()


@reads_store
def export(ask: Ask, run_id: str, request: pb.ExportResultsRequest, store: RunStore) -> Iterator[bytes]:
    """The run's judgements as a file, in pieces.

    Raises:
        ServiceError: FAILED_PRECONDITION: the library of the format is not installed; INVALID_ARGUMENT: a
            filter with whole samples.
    """
    del ask
    if request.format == pb.EXPORT_FORMAT_SAMPLES_JSONL:
        if request.filter.ByteSize():
            raise invalid("filter", "must be empty for whole samples")
        yield from samples_as_json_lines(all_samples(run_id, store))
        return
    results = store.results.iterate(run_id, request.filter)
    if request.format == pb.EXPORT_FORMAT_CSV:
        yield from as_csv(results, store.samples.tag_names(run_id))
    elif request.format == pb.EXPORT_FORMAT_PARQUET:
        try:
            yield from as_parquet(results, store.samples.tag_names(run_id))
        except ExtraMissingError as error:
            raise ServiceError(
                grpc.StatusCode.FAILED_PRECONDITION,
                error_reason_pb2.ERROR_REASON_NOT_IMPLEMENTED,
                f"this gateway cannot write the format: {error}",
            ) from error
    else:
        yield from as_json_lines(results)


@reads_store
def summarize(ask: Ask, run: RunRecord, options: SummaryOptions, store: RunStore) -> Iterator[bytes]:
    """The figures of a run's finished samples, as a Summary.

    Raises:
        ServiceError: INVALID_ARGUMENT: the options yield too many groups.
    """
    yield _summary(ask, run, options, store).SerializeToString()


@reads_store
def report(ask: Ask, run: RunRecord, limit: int, store: RunStore) -> Iterator[bytes]:
    """The report of a run in pieces, each compressed by zlib.

    Args:
        ask: Asks the gateway.
        run: The run.
        limit: The most samples one by one. 0: the default of the report.
        store: The run store.
    """
    groups = GroupingFinder()
    for sample in all_samples(run.id, store):
        groups.add(sample)
    summary = _summary(ask, run, groups.options(), store)
    for piece in write_report(run, summary, lambda: _sample_pages(run.id, store), limit):
        if piece:
            yield zlib.compress(piece, 1)


def _summary(ask: Ask, run: RunRecord, options: SummaryOptions, store: RunStore) -> Summary:
    summarizer = Summarizer(SUMMARIES, options)
    for sample in all_samples(run.id, store):
        summarizer.add(sample)
    made = summarizer.summary(Statistics(ask))
    if run.state in ACTIVE:
        made.notices.append(ONE_LOOK)
    return made


def all_samples(run_id: str, store: RunStore) -> Iterator[RunSample]:
    """All samples, read in bounded pages."""
    return chain.from_iterable(_sample_pages(run_id, store))


def _sample_pages(run_id: str, store: RunStore) -> Iterator[Sequence[RunSample]]:
    after = -1
    while page := store.samples.page(run_id, after=after, limit=_PAGE_SIZE):
        yield page
        after = page[-1].index
