"""Observes gRPC calls, on both sides: a span each, how long it took and how it ended.

Names are those of gRFC A66 ("OpenTelemetry Metrics") and of OpenTelemetry's semantic conventions for RPC. The
``grpc.aio`` instrumentation of OpenTelemetry is not used: it is a beta, has no metrics, and costs several
times as much.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from functools import cache
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from opentelemetry.trace import Span

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.delegation import DelegatingChannel
from dramaturg.service.telemetry import instruments, tracing
from dramaturg.service.telemetry.instruments import OTHER, Counter, Gauge, Histogram

INFRASTRUCTURE = ("/grpc.health.v1.Health/", "/grpc.reflection.")
"""Methods that are not observed: probes would drown the rest, and watches have no end."""

SERVED = Histogram(
    "grpc_server_call_duration_seconds",
    "How long calls took that were served, by how they ended.",
    ("grpc_method", "grpc_status"),
)
MADE = Histogram(
    "grpc_client_call_duration_seconds",
    "How long calls took that were made, retries of the transport included, by how they ended.",
    ("grpc_method", "grpc_target", "grpc_status"),
)
UNDER_WAY = Gauge("dramaturg_server_calls_in_flight", "Calls that are being served.", ("grpc_method",))
SHED = Counter(
    "dramaturg_server_calls_shed_total", "Calls refused since the server had too many.", ("grpc_method",)
)

_OVERLOADED = error_reason_pb2.ErrorReason.Name(error_reason_pb2.ERROR_REASON_OVERLOADED)
# The others are the caller's fault, and no error of the server (semantic conventions for gRPC).
_SERVER_ERRORS = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)


class ServedCall:
    """A call that is served, from the moment at which it is made.

    Args:
        path: The method, as ``/package.Service/Method``.
        metadata: What came with the call.
    """

    __slots__ = ("_method", "_span", "_token")

    def __init__(self, path: str, metadata: Any) -> None:
        self._method = method_name(path)
        self._span, self._token = tracing.start_server_span(metadata, self._method, _attributes(self._method))
        UNDER_WAY.add(self._method)

    def end(self, code: str, reason: str, seconds: float, request_id: str) -> None:
        """Takes note of how it ended.

        Args:
            code: The name of the status code.
            reason: The name of the ErrorReason. Empty: none.
            seconds: How long it took.
            request_id: Names the request in the logs.
        """
        UNDER_WAY.add(self._method, amount=-1)
        SERVED.observe(seconds, self._method, code)
        if reason == _OVERLOADED:
            SHED.add(self._method)
        if self._span.is_recording():
            self._span.set_attribute("dramaturg.request.id", request_id)
            _set_code(self._span, code, failed=code in _SERVER_ERRORS)
        tracing.end_server_span(self._span, self._token)


class ObservedChannel(DelegatingChannel):
    """Observes the calls made on a channel, and tells those who serve them of the trace.

    Args:
        channel: Makes the calls.
        target: Where they go.
    """

    def __init__(self, channel: grpc.aio.Channel, target: str) -> None:
        self._channel = channel
        self._target = target

    def behind(self) -> grpc.aio.Channel:
        """The channel that makes the calls."""
        return self._channel

    def delegate(self, make: Callable[[grpc.aio.Channel], Any]) -> Callable[..., Any]:
        """What makes the calls of one method."""
        return make(self._channel)  # type: ignore[no-any-return] # gRPC's multicallables have no common type

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """What calls a method of this arity."""
        return self._observed(method, super().unary_unary(method, *args, **kwargs))

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """What calls a method of this arity."""
        return self._observed(method, super().unary_stream(method, *args, **kwargs))

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """What calls a method of this arity."""
        return self._observed(method, super().stream_unary(method, *args, **kwargs))

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """What calls a method of this arity."""
        return self._observed(method, super().stream_stream(method, *args, **kwargs))

    def _observed(self, path: str, make_call: Callable[..., Any]) -> Callable[..., Any]:
        if path.startswith(INFRASTRUCTURE):
            return make_call
        method, target = method_name(path), self._target
        attributes = {**_attributes(method), "server.address": target}

        def call(*given: Any, metadata: Any = None, **options: Any) -> Any:
            span, headers = tracing.start_client_span(method, attributes)
            if headers:
                metadata = grpc.aio.Metadata(*(metadata or ()), *headers)
            begun = time.perf_counter()
            try:
                made = make_call(*given, metadata=metadata, **options)
            except BaseException as error:
                tracing.fail(span, type(error).__name__)
                span.end()
                raise

            if not instruments.counting() and not span.is_recording():
                return made

            def ended(done: grpc.aio.Call) -> None:
                code = _code(done)
                MADE.observe(time.perf_counter() - begun, method, target, code)
                if span.is_recording():
                    _set_code(span, code, failed=code != grpc.StatusCode.OK.name)
                    span.end()

            made.add_done_callback(ended)
            return made

        return call


@cache
def _registered(path: str) -> str:
    service, _, method = path.lstrip("/").partition("/")
    descriptor_pool.Default().FindServiceByName(service).methods_by_name[method]
    return f"{service}/{method}"


def method_name(path: str) -> str:
    """The method as ``package.Service/Method``; "other" for one of no contract known to this process."""
    try:
        return _registered(path)
    except KeyError:
        return OTHER


@cache
def _attributes(method: str) -> Mapping[str, str]:
    return {"rpc.system.name": "grpc", "rpc.method": method}


def _set_code(span: Span, code: str, *, failed: bool) -> None:
    span.set_attribute("rpc.response.status_code", code)
    if failed:
        tracing.fail(span, code)


def _code(call: grpc.aio.Call) -> str:
    """How a call that is done ended. Its coroutine has nothing to wait for any more, so it needs no task."""
    asked: Coroutine[Any, Any, grpc.StatusCode] = call.code()
    try:
        asked.send(None)
    except StopIteration as answered:
        return str(answered.value.name)
    asked.close()
    return grpc.StatusCode.UNKNOWN.name
