"""The runs of commands that evaluate rows: found again and continued, also of rows that the gateway reads."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import tempfile
import uuid
from array import array
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import Run, RunProgress, RunSample, RunSpec
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions
from dramaturg.cli.fields import Setting
from dramaturg.cli.platform import INTERRUPTED, UsageError, fail
from dramaturg.cli.runs.connection import INLINE_BYTES, make_dataset, upload_rows
from dramaturg.cli.runs.watch import watch_run
from dramaturg.cli.terminal import echo, printable
from dramaturg.client import DramaturgClient, ServiceError
from dramaturg.datasets import Format, Row
from dramaturg.kinds import find_request_kind
from dramaturg.results.files import RESULTS, ResultFiles
from dramaturg.results.run_text import describe_progress
from dramaturg.run_client import ENDED, RunClient

_OF_THE_RUN = ("models", "judges", "options", "unusable_outputs_abstain")
"""The fields of a row that a run has too, beside the options of its kind."""


def referenced_rows(
    file: str,
    form: Format | None,
    limit: int | None,
    requests: Sequence[Message],
    models: Sequence[str],
    settings: Sequence[Setting],
) -> RunRows:
    """The rows of a file or an address as the gateway will find them.

    Args:
        file: The path or the address.
        form: How the rows are written. None: as the end of the name tells.
        limit: The number of rows. None: all.
        requests: What the command makes of an empty row.
        models: Models that write a candidate for every row.
        settings: The fields of rows that the command sets.

    Raises:
        typer.Exit: 2 with a message where a run has no such options, or the file has no address.
    """
    if len(requests) != 1:
        fail("--by-reference: each row is one sample, and the command makes several of it")
    (row,) = requests
    kind = find_request_kind(row.DESCRIPTOR.name)
    assert kind is not None
    spec = RunSpec(dataset=make_dataset(file, form, limit=limit), models=models)
    options = getattr(spec, kind.name)
    options.SetInParent()
    if unset := [one.path for one in settings if one.value == "false"]:
        fail(f"--by-reference: a run cannot set {unset[0]} to false; rows may")
    for descriptor, value in row.ListFields():
        if descriptor.name in ("id", "tags"):
            continue  # what a command notes of a row, such as its line
        owner = spec if descriptor.name in _OF_THE_RUN else options
        if descriptor.name not in owner.DESCRIPTOR.fields_by_name:
            fail(f"--by-reference: {descriptor.name} cannot be set for a run; rows may bring it")
        if descriptor.message_type is not None and not descriptor.is_repeated:
            getattr(owner, descriptor.name).CopyFrom(value)
        elif descriptor.is_repeated:
            getattr(owner, descriptor.name).extend(value)
        else:
            setattr(owner, descriptor.name, value)
    digest = hashlib.sha256(spec.SerializeToString(deterministic=True)).digest()
    return RunRows(None, kind.name, models=models, digest=digest, referenced=spec)


LABEL = "evaluation"
"""The label of the run of a command. Its value identifies rows and policy."""
ORIGIN = "evaluation.json"
"""The file beside results that says what they are of."""
STORE = "runs.sqlite3"

_DONE = (run_pb2.SAMPLE_STATE_SUCCEEDED, run_pb2.SAMPLE_STATE_FAILED)
_HALTED = run_pb2.RUN_OUTCOME_HALTED
_POLLS, _POLL_SECONDS = 30, 0.1


@dataclass
class RunRows:
    """The requests of a run: JSON Lines in a temporary file (``run_rows``), or in the gateway's reach."""

    path: Path | None
    """The file. None: the gateway reads the rows."""
    kind: str = ""
    """The member of ``RunSpec.evaluation``. Empty: there are no rows."""
    size: int = 0
    """The size of the file, in bytes."""
    models: Sequence[str] = ()
    """Models that write a candidate for every row, beside those that the rows have."""
    digest: bytes = b""
    """The SHA-256 of the kind, of the models and of all rows."""
    lines: array[int] = field(default_factory=lambda: array("Q"))
    """The line of each request in the file that the user named. Empty: the gateway counts them."""
    referenced: RunSpec | None = None
    """The spec of rows that the gateway reads. None: the command has read them."""

    def spec(self) -> RunSpec:
        """A spec with the rows, if they are small enough for a request; else without a source."""
        spec = RunSpec(models=self.models)
        if self.path is None:
            assert self.referenced is not None
            spec.CopyFrom(self.referenced)
            return spec
        getattr(spec, self.kind).SetInParent()
        spec.dataset.format = run_pb2.DATASET_FORMAT_JSONL
        if self.size <= INLINE_BYTES:
            spec.dataset.content = self.path.read_bytes()
        return spec

    def identity(self, spec: RunSpec) -> bytes:
        """Identifies the run of a spec: its rows and its policy, without its budget and its limits."""
        return hashlib.sha256(self.digest + spec.policy.SerializeToString(deterministic=True)).digest()


@contextmanager
def run_rows(rows: Iterable[Row[Any]], models: Sequence[str] = ()) -> Iterator[RunRows]:
    """Writes the requests of a run to a temporary file, which is deleted at the end.

    Args:
        rows: The requests.
        models: Models that write a candidate for every row.
    """
    with tempfile.TemporaryDirectory(prefix="dramaturg-") as folder:
        path = Path(folder) / "rows.jsonl"
        written = RunRows(path, models=models)
        digest = hashlib.sha256("".join(f"model {model}\n" for model in models).encode())
        with path.open("wb") as file:
            for row in rows:
                if not written.kind:
                    kind = find_request_kind(row.request.DESCRIPTOR.name)
                    assert kind is not None
                    written.kind = kind.name
                    digest.update(f"{kind.name}\n".encode())
                # Sorted, since maps have no order and equal rows must be found again.
                line = MessageToJson(row.request, indent=None, sort_keys=True).encode() + b"\n"
                digest.update(line)
                written.size += file.write(line)
                written.lines.append(row.line)
        written.digest = digest.digest()
        yield written


class ResultFolder:
    """The folder of results of an evaluation. It has the results of one input with one set of options.

    Args:
        path: The folder; made when results are written.
        digest: Identifies the rows.
        target: The gateway that the user named.
    """

    def __init__(self, path: Path, digest: bytes, target: str | None) -> None:
        self.path = path
        self._origin = {"rows_sha256": digest.hex(), "target": target or ""}

    def check(self, *, replace: bool) -> None:
        """Refuses a folder that has other results or that cannot be written to.

        Raises:
            typer.Exit: 2 with a message.
        """
        above = next(one for one in (self.path, *self.path.absolute().parents) if one.exists())
        if not above.is_dir():
            fail(f"{self.path}: {above} is not a folder")
        if not os.access(above, os.W_OK):
            fail(f"{self.path}: {above} cannot be written to")
        if not replace and (self.path / RESULTS).exists() and self._found() != self._origin:
            fail(
                f"{self.path}: has results of another input or of other options. Name another folder with "
                "--out, or replace them with --replace"
            )

    async def write(self, samples: AsyncIterable[RunSample], lines: array[int]) -> None:
        """Writes the results, and the errors of samples that failed. Earlier files are replaced.

        Raises:
            UsageError: A file cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with ResultFiles(self.path) as files:
                async for sample in samples:
                    files.add(sample, lines[sample.index] if lines else sample.line)
            (self.path / ORIGIN).write_text(f"{json.dumps(self._origin)}\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror or error}") from error

    def _found(self) -> object:
        try:
            return json.loads((self.path / ORIGIN).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None


def store_of(identity: bytes) -> Path:
    """The store of the runs of one command in the user's data folder.

    Another command neither waits for it nor continues what it has. It exists until the results of its runs
    are written.

    Args:
        identity: Identifies the runs.
    """
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return (Path(home) / "dramaturg" / "evaluations" / identity.hex()[:32] / STORE).absolute()


def delete_store(identity: bytes) -> None:
    """Deletes the store of runs whose results are written."""
    with suppress(OSError):
        shutil.rmtree(store_of(identity).parent)


async def continue_run(
    client: DramaturgClient,
    spec: RunSpec,
    label: str,
    identity: bytes,
    *,
    ended: bool,
    before: Callable[[], Awaitable[object]] | None = None,
) -> Run:
    """The run of a spec that an earlier command began, with the present budget and limits; else a new one.

    Args:
        client: The gateway.
        spec: The spec; the label is added.
        label: The label of the run, whose value is the identity.
        identity: Identifies the run.
        ended: Whether an earlier run counts that has ended. One that was cancelled never does.
        before: Awaited before a new run is created.
    """
    runs, spec.labels[label] = client.runs, identity.hex()
    earlier = [one async for one in runs.find(labels={label: identity.hex()})]
    run = next(
        (one for one in earlier if one.state not in ENDED or (ended and one.state in _KEPT)),
        None,
    )
    if run is None:
        if before is not None:
            await before()
        # The id of an earlier run would return that run.
        request_id = "" if earlier else str(uuid.UUID(bytes=identity[:16], version=4))
        return await runs.create(spec, request_id=request_id)
    run = await runs.update(run.id, budget=spec.budget, limits=spec.limits, update_mask=("budget", "limits"))
    return await runs.resume(run.id) if run.state == run_pb2.RUN_STATE_PAUSED else run


_KEPT = ENDED - {run_pb2.RUN_STATE_CANCELLED}


@dataclass(frozen=True)
class Evaluated:
    """A run of a command, ended, paused by the engine, or interrupted."""

    run: Run
    """The run."""
    summary: Summary
    """Its figures; where the gateway computed none, its counts."""
    is_summarized: bool
    """Whether the gateway computed the figures."""
    interrupted: bool
    """Whether the user interrupted it."""

    @property
    def done(self) -> int:
        """The samples with a result or a failure."""
        return self.run.progress.succeeded_count + self.run.progress.failed_count

    @property
    def is_over(self) -> bool:
        """Whether the same command would begin a new run."""
        return not self.interrupted and (self.run.state in ENDED or self.run.outcome == _HALTED)

    def check(self) -> None:
        """Ends the command whose run is not complete.

        Raises:
            typer.Exit: 130 where it was interrupted, 1 where the engine paused it, with the reason.
        """
        if self.interrupted:
            fail(interruption(self.done, self.run.progress.sample_count), INTERRUPTED)
        if self.run.state not in ENDED:
            fail(printable(self.run.state_reason), 1)


def interruption(done: int, total: int) -> str:
    """What an interrupted command says.

    Args:
        done: The samples with a result or a failure.
        total: All samples. 0: it is not known yet.
    """
    progress = f"interrupted: {done:,} of {total:,}" if total else "interrupted"
    return f"{progress}; the same command goes on"


async def evaluate_run(
    client: DramaturgClient,
    rows: RunRows,
    spec: RunSpec,
    folder: ResultFolder,
    options: SummaryOptions,
    *,
    local: bool,
    before: Callable[[RunSpec], Awaitable[object]] | None = None,
) -> Evaluated:
    """Evaluates rows as a run, or continues it, shows it, and writes its results.

    An interruption pauses the run: samples in progress are finished, and the same command goes on.

    Args:
        client: The gateway.
        rows: The rows.
        spec: The spec (``RunRows.spec``), with policy, budget and limits.
        folder: The folder of the results.
        options: The options of the summary.
        local: Whether the gateway keeps no other runs.
        before: Awaited with the spec before a new run is created.

    Raises:
        ServiceError: The gateway refused the run or failed.
        UsageError: The results cannot be written.
    """
    await upload_rows(client, spec, rows.path)
    run = await continue_run(
        client,
        spec,
        LABEL,
        rows.identity(spec),
        # A local store is deleted once results are written: those of a run that has ended are not.
        ended=local,
        before=None if before is None else lambda: before(spec),
    )
    interrupted = False
    try:
        run = await watch_run(client.runs, run.id)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        interrupted = True
        run = await _pause(client.runs, run.id)
    echo(describe_progress(run.progress, run.state), err=True)
    try:
        summary, is_summarized = (await client.runs.summary(run.id, options)).summary, True
    except ServiceError as error:
        summary, is_summarized = _counts(run.progress, error), False
    await folder.write(client.runs.samples(run.id, _DONE), rows.lines)
    if run.outcome == _HALTED and not interrupted:
        # Its first samples failed for good: after the remedy the same command evaluates all of them.
        await client.runs.cancel(run.id)
    return Evaluated(run, summary, is_summarized, interrupted)


async def _pause(runs: RunClient, run_id: str) -> Run:
    """Pauses a run and waits shortly for the samples in progress."""
    with suppress(ServiceError):  # it has ended, or its dataset is being read
        await runs.pause(run_id)
    for _ in range(_POLLS):
        run = await runs.get(run_id)
        if not run.progress.running_count:
            return run
        await asyncio.sleep(_POLL_SECONDS)
    return await runs.get(run_id)


def _counts(progress: RunProgress, error: ServiceError) -> Summary:
    """The counts of a run of which the gateway computed no summary."""
    summary = Summary(
        sample_count=progress.succeeded_count + progress.failed_count,
        failed_sample_count=progress.failed_count,
        failures_by_reason=progress.failures_by_reason,
        judgement_count=progress.judgement_count,
        abstentions_by_reason=progress.abstentions_by_reason,
        usage=progress.usage,
        problems=[f"the gateway computed no summary: {error.message}"],
    )
    if progress.HasField("gold_answers"):
        summary.scripts.gold_answers.CopyFrom(progress.gold_answers)
    return summary
