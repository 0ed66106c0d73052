"""The status of a call that ends while its messages are written, which gRPC hides."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest

from dramaturg.service.context import REQUEST_ID_METADATA
from gateway.http.forwarding import Exchange


async def _one() -> AsyncIterator[bytes]:
    yield b""


@pytest.mark.parametrize(
    ("timeout", "code"),
    [(0.0, grpc.StatusCode.DEADLINE_EXCEEDED), (1000.0, grpc.StatusCode.RESOURCE_EXHAUSTED)],
)
async def test_a_call_that_was_cut_is_late_once_its_time_limit_has_passed(
    timeout: float, code: grpc.StatusCode
) -> None:
    hidden = grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata())
    metadata = [(REQUEST_ID_METADATA, "r")]
    async with (
        grpc.aio.insecure_channel("localhost:1") as channel,
        Exchange(channel, "/a.B/C", metadata, timeout, _one()) as exchange,
    ):
        exchange._is_cut = True
        assert exchange._error(hidden).code is code
