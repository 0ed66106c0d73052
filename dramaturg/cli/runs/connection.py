"""Reaches the gateway that has the runs, and makes the parts of a run's spec from the command line."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import grpc
import typer

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.dataset_service_pb2 import DATASET_STATE_READY, UploadedDataset
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, RunBudget, RunPolicy, RunSpec
from dramaturg.cli.lazy_group import MORE
from dramaturg.cli.options import RunTarget
from dramaturg.cli.platform import fail, run
from dramaturg.cli.terminal import echo
from dramaturg.client import DEFAULT_TARGET, DramaturgClient, ServiceError
from dramaturg.datasets import Format, format_of, local_path
from dramaturg.datasets.source import STANDARD_INPUT
from dramaturg.run_client import RunClient
from dramaturg.service.settings import TARGET_VARIABLE

__all__ = ["DEFAULT_TARGET", "REFUSALS", "RunId", "RunTarget", "ask", "ask_gateway"]


Result = TypeVar("Result")

MODEL_FAILURES = frozenset(
    {
        error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN,
        error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED,
        error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE,
        error_reason_pb2.ERROR_REASON_PROVIDER_ADDRESS_INVALID,
        error_reason_pb2.ERROR_REASON_PROVIDER_CREDIT_EXHAUSTED,
    }
)
"""The reasons of errors that mean that a model cannot be called."""
_BEGINNING = re.compile(r"[0-9]{1,8}(-[0-9]{0,6}(-[0-9a-f]{0,9})?)?")
"""The beginning of an id of a run, such as "20260131-12" of "20260131-120000-9f3a1c2b54"."""
RUN_ID = re.compile(rf"{_BEGINNING.pattern}|[0-9]{{8}}-[0-9]{{6}}-[0-9a-f]{{10}}")
"""The id of a run, or its beginning."""
_SHOWN = 3
REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
    }
)
"""The codes of requests that a gateway refuses: exit code 2."""


def ask(target: str, work: Callable[[RunClient], Awaitable[Result]]) -> Result:
    """Does something with the runs of a gateway, as ``ask_gateway`` does."""
    return ask_gateway(target, lambda client: work(client.runs))


def ask_gateway(target: str, work: Callable[[DramaturgClient], Awaitable[Result]]) -> Result:
    """Does something with a gateway.

    Raises:
        typer.Exit: With a message: 2 where the gateway refused it, 1 where the gateway or a model did not
            answer.
    """

    async def connected() -> Result:
        async with DramaturgClient(target) as client:
            return await work(client)

    try:
        return run(connected())
    except ServiceError as error:
        refuse(target, error)


def refuse(target: str, error: ServiceError) -> NoReturn:
    """Ends a command whose gateway refused it, or failed.

    Raises:
        typer.Exit: With a message: 2 where it refused it, 1 where it or a model did not answer.
    """
    if error.reason in MODEL_FAILURES:
        fail(f"{target}: {error.message}", 1)
    fail(_described(target, error), 2 if error.code in REFUSALS else 1)


def whole_id(given: str, target: str) -> str:
    """The id of the only run of the gateway whose id begins like this. Others are as they are given.

    Raises:
        typer.Exit: 2 with a message where none begins like this, or several do.
    """
    if not _BEGINNING.fullmatch(given):
        return given

    async def starting(runs: RunClient) -> list[str]:
        return [one.id async for one in runs.find() if one.id.startswith(given)]

    if not (ids := ask(target, starting)):
        fail(f"{target}: NOT_FOUND: there is no run {given}")
    if len(ids) > 1:
        fail(f"{given} begins the ids of {len(ids)} runs, {', '.join(ids[:_SHOWN])}: give more of it")
    return ids[0]


def _found(context: typer.Context, given: str) -> str:
    # The target is eager, so it is read before.
    return given if context.resilient_parsing else whole_id(given, context.params["target"])


RunId = Annotated[
    str, typer.Argument(metavar="RUN", callback=_found, help="The run's id, or how it alone begins.")
]


def _described(target: str, error: ServiceError) -> str:
    lines = [f"{target}: {error.code.name}: {error.message}"]
    if error.code is grpc.StatusCode.UNAVAILABLE:
        lines.append(f"name the gateway with --target or {TARGET_VARIABLE}; dramaturg up starts one")
    if error.code is grpc.StatusCode.UNIMPLEMENTED:
        lines.append(
            "where a gateway offers no runs at all, they are switched off there: DRAMATURG_RUNS_ENABLED"
        )
    if len(error.violations) > 1:
        lines += [f"  {field}: {description}" for field, description in error.violations]
    return "\n".join(lines)


RunConcurrency = Annotated[
    int | None,
    typer.Option("--concurrency", min=0, max=1024, help="Samples evaluated at once, by all gateways. 0: 16."),
]
Name = Annotated[
    str | None,
    typer.Option(help="Display name of the run. Default: the name of FILE.", rich_help_panel=MORE),
]
RunLabels = Annotated[
    list[str] | None,
    typer.Option(
        "--label", metavar="KEY=VALUE", help="A label of the run; repeatable.", rich_help_panel=MORE
    ),
]
MaxCost = Annotated[
    float | None,
    typer.Option(min=0, help="Budget in US dollars, at which no further sample starts. 0: none."),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        min=0, help="Budget in tokens, at which no further sample starts. 0: none.", rich_help_panel=MORE
    ),
]

BatchHours = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        max=720,
        metavar="HOURS",
        help="Make model calls by the batch API of the provider, at its lower price; live after HOURS.",
        rich_help_panel=MORE,
    ),
]

SHOWN_ERRORS = 10
"""The most rows that are no valid requests that are told one by one."""
INLINE_BYTES = 15 << 20
"""The largest file that is sent with the request, in bytes; a larger one is uploaded before."""

_FORMATS = {
    Format.JSONL: run_pb2.DATASET_FORMAT_JSONL,
    Format.CSV: run_pb2.DATASET_FORMAT_CSV,
    Format.PARQUET: run_pb2.DATASET_FORMAT_PARQUET,
}

_UPLOADED = re.compile("datasets/([0-9a-f]{64})")


def make_dataset(file: str, form: Format | None, *, limit: int | None) -> Dataset:
    """The dataset that the gateway reads itself: a path, an address, or ``datasets/ID`` of an uploaded one.

    Raises:
        typer.Exit: 2 with a message where it is standard input.
    """
    if file == STANDARD_INPUT:
        fail("--by-reference: standard input has no address that a gateway could read")
    if uploaded := _UPLOADED.fullmatch(file):
        dataset = Dataset(dataset_id=uploaded[1], row_limit=limit or 0)
        if form is not None:
            dataset.format = _FORMATS[form]
        return dataset
    path = local_path(file)
    dataset = Dataset(uri=file if path is None else str(path.absolute()), row_limit=limit or 0)
    if (form := form or format_of(file)) is not None:
        dataset.format = _FORMATS[form]
    return dataset


async def upload_rows(client: DramaturgClient, spec: RunSpec, path: Path | None) -> None:
    """Uploads the rows of a spec whose dataset has no source: they are too large for a request."""
    if spec.dataset.WhichOneof("source") is None:
        assert path is not None
        dataset = await client.datasets.upload(path, form=spec.dataset.format, on_progress=show_upload)
        spec.dataset.dataset_id = dataset.id


def show_upload(dataset: UploadedDataset) -> None:
    """Says on standard error how much of a dataset is uploaded."""
    done = dataset.state == DATASET_STATE_READY
    echo(f"upload: {upload_size(dataset)} bytes{', complete' if done else ''}", err=True)


def upload_size(dataset: UploadedDataset) -> str:
    """The bytes of a dataset; of an incomplete one also those that are received."""
    if dataset.state == DATASET_STATE_READY:
        return f"{dataset.byte_count:,}"
    return f"{dataset.received_byte_count:,} of {dataset.byte_count:,}"


def make_policy(sample_timeout: float) -> RunPolicy:
    """The failure policy of a run.

    Args:
        sample_timeout: The timeout of one attempt, in seconds.
    """
    policy = RunPolicy()
    policy.sample_timeout.FromNanoseconds(round(sample_timeout * 1e9))
    return policy


def set_lane(spec: RunSpec, batch_hours: float | None) -> None:
    """Has the model calls of a run wait for batches for some hours. None: they are made live."""
    if batch_hours is not None:
        spec.batch_then_live.deadline.FromNanoseconds(round(batch_hours * 3600e9))


def make_budget(max_cost_usd: float | None, max_tokens: int | None) -> RunBudget | None:
    """What a run may cost. None: nothing is said of it."""
    if max_cost_usd is None and max_tokens is None:
        return None
    return RunBudget(max_cost_usd=max_cost_usd, max_token_count=max_tokens or 0)


def parse_labels(texts: Iterable[str]) -> dict[str, str]:
    """Reads KEY=VALUE.

    Raises:
        typer.Exit: 2 with a message where one is malformed.
    """
    labels = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            fail(f"--label {text!r} is not of the form KEY=VALUE")
        labels[key] = value
    return labels
