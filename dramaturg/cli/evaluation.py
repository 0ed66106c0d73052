"""Shared by the commands that evaluate the rows of a file.

All rows are checked before the first call and evaluated as a run, which the same command continues after an
interruption. Results and errors are written once the run has ended or is interrupted.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePath
from typing import Annotated, Any, Generic, NoReturn, TypeVar

import typer
from google.protobuf.message import Message

from dramaturg.api.evaluation.v1.estimate_pb2 import EstimateRunResponse
from dramaturg.api.evaluation.v1.run_pb2 import Run, RunBudget, RunSpec
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions
from dramaturg.cli.evaluation_runs import (
    LABEL,
    Evaluated,
    ResultFolder,
    RunRows,
    continue_run,
    delete_store,
    evaluate_run,
    interruption,
    referenced_rows,
    run_rows,
    store_of,
)
from dramaturg.cli.fields import Setting, check_fields, parse_settings, set_fields
from dramaturg.cli.input_files import checked_rows
from dramaturg.cli.lazy_group import MORE
from dramaturg.cli.options import (
    Concurrency,
    File,
    FileFormat,
    Limit,
    Out,
    RareAsJson,
    Repeats,
    Replace,
    Target,
    Timeout,
)
from dramaturg.cli.output_files import check_writable, write_messages
from dramaturg.cli.platform import INTERRUPTED, PARTIAL, fail, gateway, output, run
from dramaturg.cli.runs.connection import (
    INLINE_BYTES,
    BatchHours,
    MaxCost,
    MaxTokens,
    Name,
    RunLabels,
    make_budget,
    make_policy,
    parse_labels,
    refuse,
    set_lane,
    upload_rows,
)
from dramaturg.cli.runs.results import print_run
from dramaturg.cli.runs.watch import EXIT_CODES
from dramaturg.cli.summaries import DryRun, Pilot, as_json, print_estimate, print_failures, show_summary
from dramaturg.cli.terminal import Terminal, echo, printable, tell_next
from dramaturg.client import DramaturgClient, ServiceError
from dramaturg.datasets import Row
from dramaturg.datasets.source import STANDARD_INPUT
from dramaturg.results.files import ERRORS, RESULTS, read_results

Request = TypeVar("Request", bound=Message)
Result = TypeVar("Result")
Detach = Annotated[
    bool,
    typer.Option(
        "--detach",
        help="With --target: print the run's id and end; the run goes on there.",
        rich_help_panel=MORE,
    ),
]
ByReference = Annotated[
    bool,
    typer.Option(
        "--by-reference",
        help="With --target and --kind: the gateway reads FILE, a path, an address or datasets/ID.",
        rich_help_panel=MORE,
    ),
]
RowsFile = Annotated[
    Path | None,
    typer.Option(
        "--rows",
        metavar="FILE",
        help="Write the requests of all samples as rows of a run; evaluate nothing.",
        rich_help_panel=MORE,
    ),
]


Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Set a field of each row, or of sampling, policy, limits or budget, as in "
        "sampling.temperature=0 (docs/reference/cli.md); repeatable.",
        rich_help_panel=MORE,
    ),
]
_OF_RUN = frozenset({"policy", "limits", "budget"})
"""The fields of ``RunSpec`` that --set may set."""
_SAMPLING = "sampling"
"""What --set calls the field options.sampling of a row."""


@dataclass(frozen=True)
class RowsJob:
    """The options of every command that evaluates rows (``dramaturg.cli.options``)."""

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
    replace: Replace = False
    """Whether results of another input or of other options in the folder are replaced."""
    as_json: RareAsJson = False
    """Whether one JSON object is printed, and no table."""
    concurrency: Concurrency = 8
    """The maximum number of concurrent samples."""
    timeout: Timeout = 600.0
    """Timeout of one sample, in seconds."""
    repeats: Repeats = 0
    """How often each judge is asked. 0: as the row says."""
    fields: Set = None
    """Fields of rows and of the run, as FIELD=VALUE."""

    def __post_init__(self) -> None:
        parse_settings(self.fields or ())

    @property
    def _settings(self) -> Sequence[Setting]:
        repeats = [f"options.repeats={self.repeats}"] if self.repeats else []
        return parse_settings([*repeats, *(self.fields or ())])

    def setting(self, path: str) -> str | None:
        """The value that a field of rows is set to. None: it is not set."""
        return next((one.value for one in reversed(self._settings) if one.path == path), None)

    def sets(self, root: str) -> bool:
        """Whether a field of rows, or one of its own fields, is set."""
        return any(one.root == root for one in self._settings)

    def row_settings(self, request: type[Message]) -> Sequence[Setting]:
        """The fields of rows that are set.

        Raises:
            typer.Exit: 2 with a message where a field does not exist, or its value is invalid.
        """
        has_sampling = _SAMPLING in request.DESCRIPTOR.fields_by_name
        settings = [
            Setting(f"options.{one.path}", one.value) if one.root == _SAMPLING and not has_sampling else one
            for one in self._settings
            if one.root not in _OF_RUN
        ]
        try:
            check_fields(request(), settings)
        except ValueError as error:
            fail(str(error).replace(f"--set options.{_SAMPLING}.", f"--set {_SAMPLING}."))
        return settings

    def apply(self, request: Message) -> None:
        """Sets the fields of a row that are set. Errors are those of ``row_settings``."""
        set_fields(request, self.row_settings(type(request)))

    def run_settings(self) -> Sequence[Setting]:
        """The fields of the run that are set."""
        return [one for one in self._settings if one.root in _OF_RUN]


@dataclass(frozen=True)
class Job(RowsJob):
    """The options of ``evaluate_file``."""

    name: Name = None
    """The display name of the run. None: the name of the file."""
    label: RunLabels = None
    """Labels of the run, as KEY=VALUE."""
    max_cost_usd: MaxCost = None
    """The cost in US dollars at which no further sample starts. None or 0: no limit."""
    max_tokens: MaxTokens = None
    """The number of tokens at which no further sample starts. None or 0: no limit."""
    batch_hours: BatchHours = None
    """For how many hours model calls wait for batches. None: they are made live."""
    dry_run: DryRun = False
    """Whether the calls and their cost are estimated, and nothing is evaluated."""
    pilot: Pilot = 0
    """The number of samples that a dry run evaluates."""
    detach: Detach = False
    """Whether the command ends once the gateway has the run."""
    by_reference: ByReference = False
    """Whether the gateway reads the file."""
    rows: RowsFile = None
    """The file for the requests of all samples, which are then not evaluated. None: they are evaluated."""

    @property
    def labels(self) -> dict[str, str]:
        """The labels that the user gives the run.

        Raises:
            typer.Exit: 2 with a message where one is malformed, or is the one by which runs are found again.
        """
        labels = parse_labels(self.label or ())
        if LABEL in labels:
            fail(f"--label {LABEL}: the command sets this label itself")
        return labels

    @property
    def budget(self) -> RunBudget | None:
        """The limits of the command. None: there are none."""
        if not (self.max_cost_usd or self.max_tokens):
            return None
        return make_budget(self.max_cost_usd, self.max_tokens)


@dataclass(frozen=True)
class Evaluation(Generic[Request]):
    """The evaluation of one such command."""

    request: type[Request]
    """The type of a row."""
    apply: Callable[[Request], None]
    """Applies the command line's settings to a request."""
    options: SummaryOptions = field(default_factory=SummaryOptions)
    """The options of the summary."""
    roles: Sequence[str] = ()
    """The roles that it calls; a gateway started for the command serves no others. Empty: all."""
    unjudged: bool = False
    """Whether no judge with a model is called: the notice about judges is then omitted."""
    conclude: Callable[[], object] | None = None
    """Called once the results of all rows are written."""
    spread: Callable[[Row[Request]], Sequence[Request]] | None = None
    """The requests that are made of a row, always equally many. None: the row's own."""
    spread_count: int = 1
    """How many those are."""
    show: Callable[[Terminal, Summary], None] = show_summary
    """Prints the tables of the summary."""
    problem: Callable[[Summary], str] = lambda _: ""
    """Why the summary answers nothing, after which the exit code is 1. Empty: it does."""
    filled: Collection[str] = ()
    """Required fields that rows may leave out, because ``apply`` fills them."""
    models: Sequence[str] = ()
    """Models that write a candidate for every row, beside those that the rows have."""
    repeated_without: Sequence[str] = ()
    """Fields that --set sets in the first request of a row alone."""


@dataclass(frozen=True)
class JudgedRows(Generic[Request]):
    """The rows that judges of a role judge, for commands about judges."""

    request: type[Request]
    """The type of a row."""
    others: Sequence[str] = ()
    """The other roles that are called."""
    narrow: Callable[[Request, str], None] = lambda *_: None
    """Has a request judged by a role, and by no other one."""


def default_folder() -> Path:
    """The default folder for results, named by the time."""
    folder = Path("out") / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    # A second command within one second.
    named = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2))
    return folder if not folder.exists() else next(one for one in named if not one.exists())


def evaluate_file(job: Job, evaluation: Evaluation[Request]) -> NoReturn:
    """Evaluates every row of a file and reports.

    Raises:
        typer.Exit: 0 all samples have a result and the coverage suffices, 1 some failed, nothing was
            judged, or the gateway computed no summary, 2 wrong usage or rows, 4 the coverage is too low, too
            many gold answers are missing, or the budget is reached or too small for the planned calls, 130
            interrupted.
    """
    job.row_settings(evaluation.request)
    try:
        check_fields(RunSpec(), job.run_settings())
    except ValueError as error:
        fail(str(error))
    if job.by_reference:
        _finish(job, evaluation, _referenced(job, evaluation))
    checked = checked_rows(job.file, evaluation.request, job.limit, job.format, evaluation.filled)
    with checked as (rows, total):
        requests = _requests(job, evaluation, rows)
        if job.rows is not None:
            if evaluation.models:
                fail("--rows: a row names no models that write candidates; leave out --model")
            check_writable(job.rows)
            write_messages(job.rows, (row.request for row in requests))
            echo(f"{total * evaluation.spread_count} rows of {total} to {job.rows}")
            raise typer.Exit(0)
        with run_rows(requests, evaluation.models) as written:
            _finish(job, evaluation, written)


def _referenced(job: Job, evaluation: Evaluation[Request]) -> RunRows:
    """The rows of a file that the gateway reads.

    Raises:
        typer.Exit: 2 with a message where the command has no gateway, or options of rows it does not read.
    """
    if job.target is None:
        fail("--by-reference: name the gateway that reads the rows with --target")
    if job.rows is not None:
        fail("--by-reference excludes --rows: the command does not read the rows")
    requests = _requests(job, evaluation, [Row(0, evaluation.request())])
    made = [row.request for row in requests]
    return referenced_rows(
        job.file, job.format, job.limit, made, evaluation.models, job.row_settings(evaluation.request)
    )


def _finish(job: Job, evaluation: Evaluation[Request], rows: RunRows) -> NoReturn:
    """Evaluates the rows of a run and reports. Errors and exit codes are those of ``evaluate_file``."""
    if job.dry_run:
        raise typer.Exit(_estimate(job, evaluation, rows))
    if job.detach:
        _detach(job, rows, _spec(job, rows))
    folder = ResultFolder(job.out or default_folder(), rows.digest, job.target)
    folder.check(replace=job.replace)
    spec = _spec(job, rows)
    evaluated = _run(job, _evaluate(job, evaluation, rows, spec, folder), len(rows.lines))
    if evaluated.done:
        _report(job, evaluation, folder.path, evaluated)
        tell_next("report", folder.path)
        if not evaluated.interrupted and (problem := evaluation.problem(evaluated.summary)):
            fail(problem, 1)
    raise typer.Exit(conclude(evaluated))


def conclude(evaluated: Evaluated) -> int:
    """Says on standard error why an evaluation is not complete; returns the exit code."""
    run, progress = evaluated.run, evaluated.run.progress
    left = progress.sample_count - evaluated.done
    if evaluated.interrupted:
        echo(interruption(evaluated.done, progress.sample_count), err=True)
        return INTERRUPTED
    if run.state_reason:
        unstarted = f"; {left:,} samples were not started" if left else ""
        echo(printable(f"{run.state_reason}{unstarted}"), err=True)
    if progress.failed_count or not evaluated.is_summarized:
        return 1
    return EXIT_CODES.get(run.state, 1)


def _requests(
    job: RowsJob, evaluation: Evaluation[Request], rows: Iterable[Row[Request]]
) -> Iterator[Row[Request]]:
    """The requests of all samples, with the settings of the command line."""
    settings = job.row_settings(evaluation.request)
    of_all = [one for one in settings if one.root not in evaluation.repeated_without]
    for row in rows:
        made = (row.request,) if evaluation.spread is None else evaluation.spread(row)
        for index, request in enumerate(made):
            evaluation.apply(request)
            set_fields(request, of_all if index else settings)
            yield Row(row.line, request)


def _spec(job: Job, rows: RunRows) -> RunSpec:
    spec = rows.spec()
    of_file = PurePath(job.file).name if job.file != STANDARD_INPUT else ""
    spec.display_name = of_file if job.name is None else job.name
    spec.labels.update(job.labels)
    spec.policy.CopyFrom(make_policy(job.timeout))
    spec.limits.max_concurrent_samples = job.concurrency
    if job.budget is not None:
        spec.budget.CopyFrom(job.budget)
    set_lane(spec, job.batch_hours)
    set_fields(spec, job.run_settings())
    return spec


def _run(job: Job, work: Coroutine[Any, Any, Result], total: int) -> Result:
    """Runs the work of a command with a gateway.

    Raises:
        typer.Exit: With a message where the gateway refused it or failed, or where it was interrupted.
    """
    try:
        return run(work)
    except ServiceError as error:
        refuse(job.target or "the gateway", error)
    except typer.Exit as stopped:
        if stopped.exit_code == INTERRUPTED:
            echo(interruption(0, total), err=True)
        raise


def _estimate(job: Job, evaluation: Evaluation[Request], rows: RunRows) -> int:
    """Prints what the evaluation is expected to take; returns the exit code."""
    spec = _spec(job, rows)
    if spec.dataset.WhichOneof("source") is None and job.target is None:
        fail(
            f"--dry-run: the rows have more than {INLINE_BYTES >> 20} MiB: estimate fewer of them with "
            "--limit, or name a gateway with --target, to which they are uploaded"
        )

    async def work() -> EstimateRunResponse:
        async with (
            gateway(job.target, evaluation.roles, quiet=True) as address,
            DramaturgClient(address) as client,
        ):
            await upload_rows(client, spec, rows.path)
            return await client.estimate_run(spec, pilot_sample_count=job.pilot, timeout=job.timeout)

    return print_estimate(_run(job, work(), len(rows.lines)), as_json=job.as_json)


def _detach(job: Job, rows: RunRows, spec: RunSpec) -> NoReturn:
    """Gives the run to the gateway and prints its id. The same command finds it again while it has not ended.

    Raises:
        typer.Exit: 0; 2 without a target; 4 where the budget is too small; as ``_run`` where that failed.
    """
    target = job.target
    if target is None:
        fail("--detach: name the gateway that keeps the run with --target; dramaturg up starts one")

    async def work() -> Run:
        async with DramaturgClient(target) as client:
            await upload_rows(client, spec, rows.path)
            before = partial(_check_budget, job, client, spec)
            return await continue_run(client, spec, LABEL, rows.identity(spec), ended=False, before=before)

    run = _run(job, work(), len(rows.lines))
    if job.as_json:
        print_run(run, as_json=True)
    else:
        typer.echo(run.id)
    tell_next("runs", "watch", run.id, "--target", target)
    raise typer.Exit(0)


async def _check_budget(job: Job, client: DramaturgClient, spec: RunSpec) -> None:
    """Ends the command where the planned calls exceed the budget.

    Raises:
        typer.Exit: 4 with a message.
    """
    if job.budget is not None:
        estimate = await client.estimate_run(spec, timeout=job.timeout)
        if estimate.budget_exceeded:
            fail(f"nothing is evaluated: {'; '.join(estimate.budget_exceeded)}", PARTIAL)


async def _evaluate(
    job: Job, evaluation: Evaluation[Request], rows: RunRows, spec: RunSpec, folder: ResultFolder
) -> Evaluated:
    identity = rows.identity(spec)
    local = job.target is None
    async with (
        gateway(
            job.target, evaluation.roles, quiet=evaluation.unjudged, run_store=store_of(identity)
        ) as address,
        DramaturgClient(address) as client,
    ):
        before = partial(_check_budget, job, client)
        evaluated = await evaluate_run(
            client, rows, spec, folder, evaluation.options, local=local, before=before
        )
    if evaluation.conclude is not None and not evaluated.interrupted:
        evaluation.conclude()
    if local and evaluated.is_over:
        delete_store(identity)
    return evaluated


def _report(job: Job, evaluation: Evaluation[Request], folder: Path, evaluated: Evaluated) -> None:
    results, failed = folder / RESULTS, evaluated.run.progress.failed_count
    if job.as_json:
        described = {**as_json(evaluated.summary), "results": str(results)}
        typer.echo(json.dumps(described, ensure_ascii=False))
        return
    console = output()
    evaluation.show(console, evaluated.summary)
    if failed:
        console.print(f"{failed} of {evaluated.done} samples failed: see {folder / ERRORS}", style="red")
    print_failures(console, read_results(folder))
    console.print(f"results: {results}", soft_wrap=True)
