"""Forwards a request to the gRPC server of this process."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import grpc
from google.rpc import status_pb2

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.context import REQUEST_ID_METADATA, Metadata
from dramaturg.service.errors import ServiceError, encode, too_large
from gateway.http.bodies import UnreadableMessageError
from gateway.http.headers import DETAILS_METADATA

# A field of an unknown length: no message can be read from it.
_DAMAGED = b"\xff"


@dataclass(eq=False)
class CallError(Exception):
    """The error that a call ended with."""

    code: grpc.StatusCode
    message: str
    details: bytes
    """The encoded ``google.rpc.Status``. Empty: none."""
    initial: Metadata
    trailing: Metadata

    @property
    def status(self) -> status_pb2.Status:
        """The status with its details."""
        if self.details:
            return status_pb2.Status.FromString(self.details)
        return status_pb2.Status(code=self.code.value[0], message=self.message)


def from_service_error(error: ServiceError, request_id: str, initial: Metadata = ()) -> CallError:
    """The error of a request that the gRPC server did not answer."""
    status = encode(error, request_id)
    return CallError(
        status.code, status.details, _details(status.trailing_metadata), initial, status.trailing_metadata
    )


class Exchange:
    """One call: sends requests and reads responses.

    Args:
        channel: Connected to the gRPC server.
        method: The full name of the method.
        metadata: The caller's metadata, with the request id last.
        timeout: The time limit in seconds. None: that of the server.
        requests: The request in Protobuf's binary form, or a stream of them.
        refusal: The reason why the request is no message: the server gets a damaged one. It refuses that
            after the checks that precede those of a message, and logs it.

    Attributes:
        request_id: The request id.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        method: str,
        metadata: Sequence[tuple[str, str | bytes]],
        timeout: float | None,
        requests: bytes | AsyncIterator[bytes],
        refusal: ServiceError | None = None,
    ) -> None:
        options: dict[str, Any] = {"timeout": timeout, "metadata": tuple(metadata)}
        self._call: Any
        self._sending: asyncio.Task[None] | None = None
        self.request_id = str(dict(metadata)[REQUEST_ID_METADATA])
        self._refusal = refusal
        self._is_cut = False
        self._end = math.inf if timeout is None else time.monotonic() + timeout
        if isinstance(requests, bytes):
            one: Any = channel.unary_stream(method)
            self._call = one(requests if refusal is None else _DAMAGED, **options)
        else:
            several: Any = channel.stream_stream(method)
            self._call = several(**options)
            self._sending = asyncio.create_task(self._send_quietly(requests))

    async def initial_metadata(self) -> Metadata:
        """The metadata before the responses. Empty where grpc.aio reads the status of the call first."""
        metadata: Metadata = await self._call.initial_metadata()
        return metadata

    async def trailing_metadata(self) -> Metadata:
        """The metadata after the last response."""
        metadata: Metadata = await self._call.trailing_metadata()
        return metadata

    async def responses(self) -> AsyncIterator[bytes]:
        """The responses in Protobuf's binary form.

        Raises:
            CallError: The call failed.
        """
        try:
            while (response := await self._call.read()) is not grpc.aio.EOF:
                yield response
        except grpc.aio.AioRpcError as error:
            raise self._error(error) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._refusal is None or (task is not None and task.cancelling()):
                raise
            raise from_service_error(self._refusal, self.request_id) from None

    async def _send(self, requests: AsyncIterator[bytes]) -> None:
        try:
            async for request in requests:
                await self._call.write(request)
            await self._call.done_writing()
        except UnreadableMessageError as error:
            self._refusal = error
            await self._call.write(_DAMAGED)
            await self._call.done_writing()
        except ServiceError as error:
            self._refusal = error
            self._call.cancel()

    async def _send_quietly(self, requests: AsyncIterator[bytes]) -> None:
        try:
            await self._send(requests)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            # The call has ended: its status is read with the responses, unless a write failed.
            self._is_cut = True
        except OSError:
            self._call.cancel()  # The caller has gone.

    def _error(self, error: grpc.aio.AioRpcError) -> CallError:
        initial, trailing = error.initial_metadata() or (), error.trailing_metadata() or ()
        # INVALID_ARGUMENT is the server's answer to a damaged message.
        if self._refusal is not None and error.code() in {
            self._refusal.code,
            grpc.StatusCode.INVALID_ARGUMENT,
        }:
            return from_service_error(self._refusal, self.request_id, initial)
        if self._is_cut and error.code() is grpc.StatusCode.INTERNAL and not trailing:
            is_late = time.monotonic() >= self._end
            told = too_late("the time limit passed while messages were sent") if is_late else _cut()
            return from_service_error(told, self.request_id)
        return CallError(error.code(), error.details() or "", _details(trailing), initial, trailing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call.cancel()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)


def too_late(message: str) -> ServiceError:
    """The error of a call whose time limit passed."""
    return ServiceError(
        grpc.StatusCode.DEADLINE_EXCEEDED, error_reason_pb2.ERROR_REASON_DEADLINE_EXCEEDED, message
    )


def _cut() -> ServiceError:
    """The error of a call that the server ended while its messages were written, which hides the status."""
    return too_large("the call was refused, and has more messages than are read of a refused call")


def _details(trailing: Metadata) -> bytes:
    return next(
        (value for key, value in trailing if key == DETAILS_METADATA and isinstance(value, bytes)), b""
    )
