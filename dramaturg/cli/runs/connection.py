"""Reaches the gateway that has the runs."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, NoReturn, TypeVar

import grpc
import typer

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.cli.options import RunTarget
from dramaturg.cli.platform import fail, run
from dramaturg.client import DEFAULT_TARGET, TARGET_VARIABLE, DramaturgClient, ServiceError
from dramaturg.run_client import RunClient

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
