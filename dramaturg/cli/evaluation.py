"""Shared by the commands that evaluate the rows of a file.

All rows are checked before the first call; results and errors are written as they come; counts are reported
also when the command is interrupted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import grpc
import typer
from google.protobuf.message import Message

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.estimate_pb2 import EstimateRunResponse
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions
from dramaturg.cli.estimates import DryRun, Pilot, print_estimate, spec_of_rows
from dramaturg.cli.input_files import checked_rows
from dramaturg.cli.options import AsJson, Concurrency, File, FileFormat, Limit, Out, Target, Timeout
from dramaturg.cli.platform import PARTIAL, UsageError, fail, gateway, output, run
from dramaturg.cli.progress import JudgementCount, ProgressBar
from dramaturg.cli.sample_loop import evaluate_rows
from dramaturg.cli.sampling_options import SamplingOptions
from dramaturg.cli.summaries import as_json, show_summary, summarize_folder
from dramaturg.cli.terminal import echo
from dramaturg.cli.unavailable_models import HINT, ModelsUnavailableError
from dramaturg.client import DramaturgClient, ServiceError
from dramaturg.datasets import Row
from dramaturg.datasets.row_file import RowFile
from dramaturg.results.coverage import DEFAULT_MIN_COVERAGE, CoverageCounter
from dramaturg.results.files import ERRORS, RESULTS, ResultWriter
from dramaturg.summaries.samples import SampleAggregator

Request = TypeVar("Request", bound=Message)

WAITS_SECONDS = 2.0
"""How often the rate limits that calls wait for are read."""
WINDOW = 16
"""The number of rows that may wait for a slow one, for each concurrent row."""


@dataclass(frozen=True)
class Job(SamplingOptions):
    """The options of every such command (``dramaturg.cli.option_groups``)."""

    file: File
    """The file of rows; "-" is standard input."""
    format: FileFormat = None
    """How it is written. None: as the end of its name tells, else JSON Lines."""
    limit: Limit = None
    """The number of samples to read. None: all."""
    target: Target = None
    """The gateway. None: one is started for the command."""
    out: Out = None
    """The folder of the results. None: one named by the time."""
    as_json: AsJson = False
    """Whether one JSON object is printed, and no table."""
    concurrency: Concurrency = 8
    """The maximum number of concurrent samples."""
    timeout: Timeout = 600.0
    """Timeout of one sample, in seconds."""
    dry_run: DryRun = False
    """Whether the calls and their cost are estimated, and nothing is evaluated."""
    pilot: Pilot = 0
    """The number of samples that a dry run evaluates."""


@dataclass(frozen=True)
class Evaluation(Generic[Request]):
    """The evaluation of one such command."""

    request: type[Request]
    """The type of a row."""
    evaluate: Callable[[DramaturgClient, Request, float], AsyncGenerator[Any]]
    """Evaluates a request within a timeout in seconds."""
    apply: Callable[[Request], None]
    """Applies the command line's settings to a request."""
    noun: str
    """The noun for judgements, such as "verdicts"."""
    judged: Callable[[Any], JudgementCount]
    """Counts the judgements of an event."""
    options: SummaryOptions = field(default_factory=SummaryOptions)
    """The options of the summary."""
    aggregator: SampleAggregator[Any] = field(default_factory=SampleAggregator)
    """Counts the results."""
    roles: Sequence[str] = ()
    """The roles that it calls; a gateway started for the command serves no others. Empty: all."""
    judges: Sequence[tuple[str, str]] = ()
    """The (role, judge) pairs that the command line names; they are looked up before the first call."""
    unjudged: bool = False
    """Whether no judge is called: the notice about judges is then omitted."""
    conclude: Callable[[str], Awaitable[None]] | None = None
    """Called after the last row with the gateway's address."""
    spread: Callable[[Row[Request]], Sequence[Request]] | None = None
    """The requests that are made of a row, always equally many. None: the row's own."""
    spread_count: int = 1
    """How many those are."""
    filled: Collection[str] = ()
    """Required fields that rows may leave out, because ``apply`` fills them."""


def default_folder() -> Path:
    """The default folder for results, named by the time."""
    return Path("out") / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def evaluate_file(job: Job, evaluation: Evaluation[Request]) -> NoReturn:
    """Evaluates every row of a file and reports.

    Raises:
        typer.Exit: 0 all samples have a result and the coverage suffices, 1 some failed, nothing was
            judged, or the gateway computed no summary, 2 wrong usage or rows, 4 the coverage is too low,
            130 interrupted.
    """
    folder = job.out or default_folder()
    coverage, summary = CoverageCounter(), Summary()
    checked = checked_rows(job.file, evaluation.request, job.limit, job.format, evaluation.filled)
    with checked as (rows, total):
        if job.dry_run:
            estimate = run(_estimate(job, evaluation, rows))
            raise typer.Exit(print_estimate(estimate, as_json=job.as_json))
        try:
            run(_evaluate(job, evaluation, coverage, rows, total, folder, summary))
        except ModelsUnavailableError as error:
            fail(f"{error}\n{HINT}", code=1)
        finally:
            if evaluation.aggregator.samples:
                _report(job, evaluation, folder, _with_counts(summary, coverage, evaluation.aggregator))
    figures_missing = not summary.sample_count
    raise typer.Exit(_conclude(coverage) or int(figures_missing))


def _conclude(coverage: CoverageCounter) -> int:
    """Reports a low coverage on standard error; returns the exit code."""
    share = coverage.coverage
    if share is not None and share < DEFAULT_MIN_COVERAGE:
        said = (
            f"the coverage is {share:.3g}, below {DEFAULT_MIN_COVERAGE:g}" if share else "nothing was judged"
        )
        echo(f"{said}: {coverage.describe()}. {coverage.words}".strip(), err=True)
    if coverage.failures or share == 0:
        return 1
    return PARTIAL if share is not None and share < DEFAULT_MIN_COVERAGE else 0


async def _estimate(job: Job, evaluation: Evaluation[Request], rows: RowFile[Request]) -> EstimateRunResponse:
    def requests() -> Iterator[Request]:
        for row in rows if evaluation.spread is None else _spread(rows, evaluation.spread):
            evaluation.apply(row.request)
            job.apply(row.request)
            yield row.request

    spec = spec_of_rows(requests(), job.concurrency)
    async with (
        gateway(job.target, evaluation.roles, quiet=True) as address,
        DramaturgClient(address) as client,
    ):
        try:
            return await client.estimate_run(spec, pilot_sample_count=job.pilot, timeout=job.timeout)
        except ServiceError as error:
            raise UsageError(error.message) from error


async def _evaluate(
    job: Job,
    evaluation: Evaluation[Request],
    coverage: CoverageCounter,
    rows: RowFile[Request],
    total: int,
    folder: Path,
    summary: Summary,
) -> None:
    """Evaluates the rows and merges the summary of all finished ones into ``summary``."""
    async with (
        gateway(job.target, evaluation.roles, quiet=evaluation.unjudged) as address,
        DramaturgClient(address) as client,
    ):

        def evaluate(request: Request) -> AsyncGenerator[Any]:
            evaluation.apply(request)
            job.apply(request)
            return evaluation.evaluate(client, request, job.timeout)

        await _check_judges(client, evaluation.judges)
        try:
            writer = ResultWriter(folder, WINDOW * job.concurrency)
        except OSError as error:
            raise UsageError(f"{folder}: {error.strerror or error}") from error
        samples = rows if evaluation.spread is None else _spread(rows, evaluation.spread)
        try:
            with (
                writer,
                ProgressBar(
                    total * evaluation.spread_count,
                    "" if evaluation.unjudged else evaluation.noun,
                    evaluation.judged,
                ) as progress,
            ):
                watcher = asyncio.create_task(_watch_waits(client, progress))
                try:
                    await evaluate_rows(
                        evaluate,
                        samples,
                        writer,
                        evaluation.aggregator,
                        progress,
                        coverage,
                        concurrency=job.concurrency,
                    )
                finally:
                    watcher.cancel()
        finally:
            # Also after an interruption: what is finished is reported.
            if evaluation.aggregator.samples:
                summary.MergeFrom(await summarize_folder(client, folder, evaluation.options))
        if evaluation.conclude is not None:
            await evaluation.conclude(address)


async def _watch_waits(client: DramaturgClient, progress: ProgressBar) -> None:
    """Shows the rate limits that model calls wait for, until it is cancelled."""
    while True:
        await asyncio.sleep(WAITS_SECONDS)
        try:
            waits = await client.model_waits(timeout=WAITS_SECONDS)
        except ServiceError as error:
            if error.code is grpc.StatusCode.UNIMPLEMENTED:
                return
            waits = ()
        progress.show_waits(waits)


def _spread(
    rows: Iterable[Row[Request]], spread: Callable[[Row[Request]], Sequence[Request]]
) -> Iterator[Row[Request]]:
    for row in rows:
        for request in spread(row):
            yield Row(row.line, request)


async def _check_judges(client: DramaturgClient, judges: Sequence[tuple[str, str]]) -> None:
    """Refuses an unknown judge before any sample fails because of it."""
    for role, name in judges:
        try:
            await client.check_judge(role, name)
        except ServiceError as error:
            if error.reason == error_reason_pb2.ERROR_REASON_JUDGE_UNKNOWN:
                raise UsageError(f"--judge {role}={name}: {error.message}") from error
            # Other errors may be transient, or show in every sample.
            return


def _with_counts(summary: Summary, coverage: CoverageCounter, counted: SampleAggregator[Any]) -> Summary:
    """The summary; where the gateway computed none, the counts of the command."""
    if summary.sample_count:
        return summary
    return Summary(
        sample_count=counted.samples,
        failed_sample_count=counted.failed_samples,
        failures_by_reason=coverage.failures,
        judgement_count=coverage.judgements,
        abstentions_by_reason=coverage.abstentions,
        usage=counted.usage,
        problems=summary.problems,
    )


def _report(job: Job, evaluation: Evaluation[Request], folder: Path, summary: Summary) -> None:
    aggregator, results = evaluation.aggregator, folder / RESULTS
    if job.as_json:
        typer.echo(json.dumps({**as_json(summary), "results": str(results)}, ensure_ascii=False))
        return
    console = output()
    show_summary(console, summary)
    if aggregator.failed_samples:
        console.print(
            f"{aggregator.failed_samples} of {aggregator.samples} samples failed: see {folder / ERRORS}",
            style="red",
        )
    console.print(f"results: {results}", soft_wrap=True)
