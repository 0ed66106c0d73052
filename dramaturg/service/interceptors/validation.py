"""Refuses requests that break the limits of the contract, before the servicer sees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.message import Message

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.errors import ServiceError, invalid, too_large
from dramaturg.service.interceptors.call import Call, DamagedMessage, Proceed
from dramaturg.service.validation import validate

LARGE_BYTES = 256 * 1024
"""A larger message is checked in a thread: with hundreds of thousands of elements that takes a second, in
which the event loop would answer no other call, nor a probe."""

_THREADS = 2
_pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="validation")


class Validation:
    """Checks each request.

    Args:
        max_message_bytes: The largest request, in bytes.
    """

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes

    async def intercept(self, call: Call, proceed: Proceed) -> None:
        """Checks the request, or each one of a stream.

        Raises:
            ServiceError: INVALID_ARGUMENT with every violation, or because the bytes are no message;
                RESOURCE_EXHAUSTED, ERROR_REASON_TOO_LARGE.
        """
        size = call.request_bytes
        self._require_readable(call.request)
        if size is None:
            call.request = self._each_checked(call.request)
        elif size <= LARGE_BYTES:
            if isinstance(call.request, Message):
                validate(call.request, size)
        else:
            await _check(call.request, size)
        await proceed(call)

    async def _each_checked(self, messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for message in messages:
            self._require_readable(message)
            if isinstance(message, Message):
                await _check(message, message.ByteSize())
            yield message

    def _require_readable(self, message: object) -> None:
        if not isinstance(message, DamagedMessage):
            return
        if message.excess is not None:
            field, limit = message.excess
            raise invalid(field, f"has more than {limit} elements; at most {limit} are allowed")
        if message.size:
            raise too_large(self._max_message_bytes, message.size)
        raise ServiceError(
            grpc.StatusCode.INVALID_ARGUMENT,
            error_reason_pb2.ERROR_REASON_FIELD_INVALID,
            "the bytes of the request are no message of this method",
        )


async def _check(message: object, size: int) -> None:
    if not isinstance(message, Message):
        return
    if size > LARGE_BYTES:
        await asyncio.get_running_loop().run_in_executor(_pool, validate, message, size)
    else:
        validate(message, size)
