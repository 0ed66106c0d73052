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
from typing import Annotated, Any, Generic, NoReturn, TypeVar

import grpc
import typer
from google.protobuf.message import Message

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.estimate_pb2 import EstimateRunResponse
from dramaturg.api.evaluation.v1.run_pb2 import RunBudget, RunSpec
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions
from dramaturg.cli.estimates import DryRun, Pilot, print_estimate, spec_of_rows
from dramaturg.cli.input_files import checked_rows
from dramaturg.cli.options import AsJson, Concurrency, File, FileFormat, Limit, Out, Target, Timeout
from dramaturg.cli.output_files import check_writable, write_messages
from dramaturg.cli.platform import PARTIAL, UsageError, fail, gateway, output, run
from dramaturg.cli.progress import JudgementCount, ProgressBar
from dramaturg.cli.runs.spec import EstimateUsage, MaxCost, MaxTokens, make_budget
from dramaturg.cli.sample_loop import evaluate_rows
from dramaturg.cli.sampling_options import SamplingOptions
from dramaturg.cli.summaries import as_json, show_summary, summarize_folder
from dramaturg.cli.terminal import Terminal, echo
from dramaturg.cli.unavailable_models import HINT, ModelsUnavailableError
from dramaturg.client import DramaturgClient, ServiceError
from dramaturg.datasets import Row
from dramaturg.datasets.row_file import RowFile
from dramaturg.results.coverage import DEFAULT_MIN_COVERAGE, CoverageCounter
from dramaturg.results.files import ERRORS, RESULTS, ResultWriter
from dramaturg.results.gold_answers import too_many_missing
from dramaturg.summaries.samples import SampleAggregator

Request = TypeVar("Request", bound=Message)
RowsFile = Annotated[
    Path | None,
    typer.Option(
        "--rows",
        metavar="FILE",
        help="Write the requests of all samples as rows of a run; evaluate nothing.",
    ),
]

WAITS_SECONDS = 2.0
"""How often the rate limits that calls wait for are read."""
WINDOW = 16
"""The number of rows that may wait for a slow one, for each concurrent row."""


@dataclass(frozen=True)
class RowsJob(SamplingOptions):
    """The options of every command that evaluates rows (``dramaturg.cli.option_groups``)."""

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


@dataclass(frozen=True)
class Job(RowsJob):
    """The options of ``evaluate_file``."""

    max_cost_usd: MaxCost = None
    """The cost in US dollars at which no further sample starts. None or 0: no limit."""
    max_tokens: MaxTokens = None
    """The number of tokens at which no further sample starts. None or 0: no limit."""
    estimate_usage: EstimateUsage = False
    """Whether answers without token counts count with estimates."""
    dry_run: DryRun = False
    """Whether the calls and their cost are estimated, and nothing is evaluated."""
    pilot: Pilot = 0
    """The number of samples that a dry run evaluates."""
    rows: RowsFile = None
    """The file for the requests of all samples, which are then not evaluated. None: they are evaluated."""

    @property
    def budget(self) -> RunBudget | None:
        """The limits of the command. None: there are none."""
        if not (self.max_cost_usd or self.max_tokens):
            return None
        return make_budget(self.max_cost_usd, self.max_tokens, estimate_usage=self.estimate_usage)


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
    show: Callable[[Terminal, Summary], None] = show_summary
    """Prints the tables of the summary."""
    filled: Collection[str] = ()
    """Required fields that rows may leave out, because ``apply`` fills them."""
    max_missing_gold_answers: float | None = None
    """The share of samples that may be judged without a gold answer. None: as runs have it."""


@dataclass(frozen=True)
class JudgedRows(Generic[Request]):
    """The rows that judges of a role judge, for commands about judges."""

    request: type[Request]
    """The type of a row."""
    evaluate: Callable[[DramaturgClient, Request, float], AsyncGenerator[Any]]
    """Evaluates a request within a timeout in seconds."""
    noun: str
    """The noun for judgements."""
    judged: Callable[[Any], JudgementCount]
    """Counts the judgements of an event."""
    others: Sequence[str] = ()
    """The other roles that are called."""
    narrow: Callable[[Request, str], None] = lambda *_: None
    """Has a request judged by a role, and by no other one."""


def default_folder() -> Path:
    """The default folder for results, named by the time."""
    return Path("out") / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def evaluate_file(job: Job, evaluation: Evaluation[Request]) -> NoReturn:
    """Evaluates every row of a file and reports.

    Raises:
        typer.Exit: 0 all samples have a result and the coverage suffices, 1 some failed, nothing was
            judged, or the gateway computed no summary, 2 wrong usage or rows, 4 the coverage is too low, too
            many gold answers are missing, or the budget is reached or too small for the planned calls, 130
            interrupted.
    """
    folder = job.out or default_folder()
    coverage, summary = CoverageCounter(), Summary()
    checked = checked_rows(job.file, evaluation.request, job.limit, job.format, evaluation.filled)
    with checked as (rows, total):
        if job.rows is not None:
            check_writable(job.rows)
            requests: Iterator[Request] = _requests(job, evaluation, rows)
            write_messages(job.rows, requests)
            echo(f"{total * evaluation.spread_count} rows of {total} to {job.rows}")
            raise typer.Exit(0)
        if job.dry_run:
            estimate = run(_estimate(job, evaluation, rows))
            raise typer.Exit(print_estimate(estimate, as_json=job.as_json))
        reached = ""
        try:
            reached = run(_evaluate(job, evaluation, coverage, rows, total, folder, summary))
        except ModelsUnavailableError as error:
            fail(f"{error}\n{HINT}", code=1)
        finally:
            if evaluation.aggregator.samples:
                _report(job, evaluation, folder, _with_counts(summary, coverage, evaluation.aggregator))
    figures_missing = not summary.sample_count
    if reached:
        left = total * evaluation.spread_count - evaluation.aggregator.samples
        echo(f"{reached}; {left:,} samples were not started", err=True)
    code = _conclude(coverage, evaluation.max_missing_gold_answers)
    raise typer.Exit(code or int(figures_missing) or (PARTIAL if reached else 0))


def _conclude(coverage: CoverageCounter, max_missing_gold_answers: float | None) -> int:
    """Reports a low coverage and missing gold answers on standard error; returns the exit code."""
    share = coverage.coverage
    if share is not None and share < DEFAULT_MIN_COVERAGE:
        said = (
            f"the coverage is {share:.3g}, below {DEFAULT_MIN_COVERAGE:g}" if share else "nothing was judged"
        )
        echo(f"{said}: {coverage.describe()}. {coverage.words}".strip(), err=True)
    if missing := too_many_missing(coverage.gold_answers, max_missing_gold_answers):
        echo(f"{missing}. {coverage.gold_answer_words}".strip(), err=True)
    if coverage.failures or share == 0:
        return 1
    return PARTIAL if missing or (share is not None and share < DEFAULT_MIN_COVERAGE) else 0


def _requests(job: Job, evaluation: Evaluation[Request], rows: RowFile[Request]) -> Iterator[Request]:
    """The requests of all samples, with the settings of the command line."""
    for row in rows if evaluation.spread is None else _spread(rows, evaluation.spread):
        evaluation.apply(row.request)
        job.apply(row.request)
        yield row.request


def _spec(
    job: Job, evaluation: Evaluation[Request], rows: RowFile[Request], *, partial: bool = False
) -> RunSpec:
    """The run of the rows, for an estimate."""
    requests: Iterator[Request] = _requests(job, evaluation, rows)
    spec = spec_of_rows(requests, job.concurrency, partial=partial)
    if job.budget is not None:
        spec.budget.CopyFrom(job.budget)
    return spec


async def _check_budget(
    client: DramaturgClient, job: Job, evaluation: Evaluation[Request], rows: RowFile[Request]
) -> None:
    """Refuses a budget that the planned calls exceed, or that needs a price that is not known.

    Of a file that is too large for one request the first rows are planned.

    Raises:
        typer.Exit: 4: the plan exceeds the budget; 2: a price is not known.
    """
    estimate = await client.estimate_run(_spec(job, evaluation, rows, partial=True), timeout=job.timeout)
    if estimate.budget_exceeded:
        fail(f"nothing is evaluated: {'; '.join(estimate.budget_exceeded)}", PARTIAL)
    unpriced = [
        one.model or "the default model"
        for one in estimate.models
        if one.call_count and not one.HasField("prompt_usd_per_million")
    ]
    if job.max_cost_usd and unpriced:
        raise UsageError(
            f"--max-cost-usd needs the price of each model, and that of {', '.join(dict.fromkeys(unpriced))} "
            "is unknown: name a price table under `prices` in the settings of the provider, or use "
            "--max-tokens"
        )


async def _estimate(job: Job, evaluation: Evaluation[Request], rows: RowFile[Request]) -> EstimateRunResponse:
    spec = _spec(job, evaluation, rows)
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
) -> str:
    """Evaluates the rows and merges the summary of all finished ones into ``summary``.

    Returns:
        The limit of the budget that ended the evaluation. Empty: none.
    """
    async with (
        gateway(job.target, evaluation.roles, quiet=evaluation.unjudged) as address,
        DramaturgClient(address) as client,
    ):

        def evaluate(request: Request) -> AsyncGenerator[Any]:
            evaluation.apply(request)
            job.apply(request)
            return evaluation.evaluate(client, request, job.timeout)

        await _check_judges(client, evaluation.judges)
        if job.budget is not None:
            await _check_budget(client, job, evaluation, rows)
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
                    reached = await evaluate_rows(
                        evaluate,
                        samples,
                        writer,
                        evaluation.aggregator,
                        progress,
                        coverage,
                        concurrency=job.concurrency,
                        budget=job.budget,
                    )
                finally:
                    watcher.cancel()
        finally:
            # Also after an interruption: what is finished is reported.
            if evaluation.aggregator.samples:
                summary.MergeFrom(await summarize_folder(client, folder, evaluation.options))
        if evaluation.conclude is not None:
            await evaluation.conclude(address)
    return reached


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
    made = Summary(
        sample_count=counted.samples,
        failed_sample_count=counted.failed_samples,
        failures_by_reason=coverage.failures,
        judgement_count=coverage.judgements,
        abstentions_by_reason=coverage.abstentions,
        usage=counted.usage,
        problems=summary.problems,
    )
    if coverage.gold_answers.sample_count:
        made.scripts.gold_answers.CopyFrom(coverage.gold_answers)
    return made


def _report(job: Job, evaluation: Evaluation[Request], folder: Path, summary: Summary) -> None:
    aggregator, results = evaluation.aggregator, folder / RESULTS
    if job.as_json:
        typer.echo(json.dumps({**as_json(summary), "results": str(results)}, ensure_ascii=False))
        return
    console = output()
    evaluation.show(console, summary)
    if aggregator.failed_samples:
        console.print(
            f"{aggregator.failed_samples} of {aggregator.samples} samples failed: see {folder / ERRORS}",
            style="red",
        )
    console.print(f"results: {results}", soft_wrap=True)
