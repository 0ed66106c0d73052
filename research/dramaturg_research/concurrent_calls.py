"""Concurrent calls. A failed call is an answer that states the failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import grpc

from dramaturg.service.errors import from_rpc_error

Request = TypeVar("Request")
Response = TypeVar("Response")


async def call_each(
    requests: Iterable[Request],
    call: Callable[[Request], Awaitable[Response]],
    failed: Callable[[str], Response],
    concurrency: int,
) -> list[Response]:
    """Makes the calls and returns the answers, in the order of the requests.

    Args:
        requests: The requests.
        call: Makes a call.
        failed: Makes an answer from the failure, such as "UNAVAILABLE: connection refused".
        concurrency: The maximum number of concurrent calls.
    """
    slots = asyncio.Semaphore(concurrency)

    async def one(request: Request) -> Response:
        async with slots:
            try:
                return await call(request)
            except grpc.aio.AioRpcError as failure:
                error = from_rpc_error(failure)
                return failed(f"{error.code.name}: {error.message}")

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(request)) for request in requests]
    return [task.result() for task in tasks]
