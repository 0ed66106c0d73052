"""Carries the deadline and the request id of the call being served on to the calls made for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from dramaturg.service import context

Details = grpc.aio.ClientCallDetails


def propagation_interceptors(timeout: float, *, reserve: float) -> list[grpc.aio.ClientInterceptor]:
    """Interceptors that bound every call and name the request that it is made for.

    A call gets the least of its own timeout, the channel's, and what is left to the call being served.

    There is one object for each arity: a channel looks at an interceptor's base classes in turn and stops at
        the first
    that fits, so an object with all four would see unary calls only.

    Args:
        timeout: The longest that a call may take, in seconds, where the caller states no other.
        reserve: What is kept of the time left, in seconds, to still answer with a proper error.
    """

    def prepare(details: Details) -> Details:
        return _prepared(details, timeout, reserve)

    return [_UnaryUnary(prepare), _UnaryStream(prepare), _StreamUnary(prepare), _StreamStream(prepare)]


def _prepared(details: Details, timeout: float, reserve: float) -> Details:
    seconds = timeout if details.timeout is None else details.timeout
    left = context.remaining()
    if left is not None:
        seconds = min(seconds, max(0.0, left - reserve))
    metadata = grpc.aio.Metadata(*(details.metadata or ()))
    request = context.current()
    if request is not None and request.request_id and metadata.get(context.REQUEST_ID_METADATA) is None:
        metadata.add(context.REQUEST_ID_METADATA, request.request_id)
    return Details(details.method, seconds, metadata, details.credentials, details.wait_for_ready)


class _Preparing:
    def __init__(self, prepare: Callable[[Details], Details]) -> None:
        self._prepare = prepare


class _UnaryUnary(_Preparing, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(
        self, continuation: Any, client_call_details: Details, request: Any
    ) -> Any:
        return await continuation(self._prepare(client_call_details), request)


class _UnaryStream(_Preparing, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(
        self, continuation: Any, client_call_details: Details, request: Any
    ) -> Any:
        return await continuation(self._prepare(client_call_details), request)


class _StreamUnary(_Preparing, grpc.aio.StreamUnaryClientInterceptor):
    async def intercept_stream_unary(
        self, continuation: Any, client_call_details: Details, request_iterator: Any
    ) -> Any:
        return await continuation(self._prepare(client_call_details), request_iterator)


class _StreamStream(_Preparing, grpc.aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(
        self, continuation: Any, client_call_details: Details, request_iterator: Any
    ) -> Any:
        return await continuation(self._prepare(client_call_details), request_iterator)
