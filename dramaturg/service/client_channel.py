"""The channel of a client: deadline, metadata and telemetry of its calls."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import grpc

from dramaturg.service import context
from dramaturg.service.auth import caller
from dramaturg.service.auth.credentials import AUTHORIZATION_METADATA
from dramaturg.service.connection import Connection
from dramaturg.service.files import ReloadingFile
from dramaturg.service.rpc import INFRASTRUCTURE
from dramaturg.service.telemetry import instruments, tracing
from dramaturg.service.telemetry.calls import MADE, call_attributes, method_name, target_label

Pair = tuple[str, Any]
"""A key of metadata and its value, text or bytes."""


class ClientChannel(grpc.aio.Channel):
    """Gives every call a deadline, the request id, the tenant, the token and the trace, and observes it.

    A call gets its own timeout or else the channel's, and at most the time that is left to the call being
    served. ``math.inf`` is no timeout. Metadata that the caller states is not replaced.

    It is not a client interceptor of gRPC: those create a task and three objects for every call.

    Args:
        connection: Makes the calls.
        target: The target, as the metrics name it.
        timeout: The default timeout of a call, in seconds.
        reserve: The seconds of the time left that are reserved for returning an error.
        token: The value of ``token_header``. ``None``: the calls have no token.
        token_header: The metadata key of the token.
    """

    def __init__(
        self,
        connection: Connection,
        target: str,
        *,
        timeout: float,
        reserve: float,
        token: ReloadingFile[str] | None,
        token_header: str = AUTHORIZATION_METADATA,
    ) -> None:
        self._connection = connection
        self._target = target
        self._timeout = timeout
        self._reserve = reserve
        self._token = token
        self._token_header = token_header
        self._methods: dict[str, Callable[..., Any]] = {}

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Returns the callable of a method of this arity."""
        return self._method("unary_unary", method, args, kwargs)

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Returns the callable of a method of this arity."""
        return self._method("unary_stream", method, args, kwargs)

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Returns the callable of a method of this arity."""
        return self._method("stream_unary", method, args, kwargs)

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Returns the callable of a method of this arity."""
        return self._method("stream_stream", method, args, kwargs)

    def _method(self, arity: str, method: str, args: Any, kwargs: Any) -> Callable[..., Any]:
        # Those of generated stubs are kept: a stub binds all methods of its service, and some code makes one
        # for every call.
        if not kwargs.get("_registered_method"):
            return self._callable(arity, method, args, kwargs)
        bound = self._methods.get(method)
        if bound is None:
            bound = self._methods[method] = self._callable(arity, method, args, kwargs)
        return bound

    def _callable(self, arity: str, path: str, args: Any, kwargs: Any) -> Callable[..., Any]:
        method, target = method_name(path), self._target
        attributes = {**call_attributes(method), "server.address": target}
        is_observed = not path.startswith(INFRASTRUCTURE)
        newest: grpc.aio.Channel | None = None
        make: Any = None

        def call(*given: Any, timeout: float | None = None, metadata: Any = None, **options: Any) -> Any:
            nonlocal newest, make
            channel = self._connection.channel()
            if channel is not newest:
                newest, make = channel, getattr(channel, arity)(path, *args, **kwargs)
            timeout, pairs = self._given(timeout)
            if not is_observed:
                return make(*given, timeout=timeout, metadata=_appended(metadata, pairs), **options)
            span, headers = tracing.start_client_span(method, attributes)
            begun = time.perf_counter()
            try:
                sent = _appended(metadata, pairs, headers)
                made = make(*given, timeout=timeout, metadata=sent, **options)
            except BaseException as error:
                tracing.fail(span, type(error).__name__)
                span.end()
                raise
            if instruments.counting() or span.is_recording():

                def ended(done: grpc.aio.Call) -> None:
                    code = _code(done)
                    MADE.observe(time.perf_counter() - begun, method, target_label(method, target), code)
                    if span.is_recording():
                        tracing.set_code(span, code, failed=code != grpc.StatusCode.OK.name)
                        span.end()

                made.add_done_callback(ended)
            return made

        return call

    def _given(self, timeout: float | None) -> tuple[float | None, list[Pair]]:
        """The timeout of a call, and the metadata that it is given."""
        seconds = self._timeout if timeout is None else timeout
        pairs: list[Pair] = []
        request = context.current()
        if request is not None:
            left = request.remaining()
            if left is not None:
                seconds = min(seconds, max(0.0, left - self._reserve))
            if request.request_id:
                pairs.append((context.REQUEST_ID_METADATA, request.request_id))
        if tenant := caller.current().tenant:
            pairs.append((caller.TENANT_METADATA, tenant))
        if self._token is not None:
            pairs.append((self._token_header, self._token.current()))
        return None if seconds == math.inf else seconds, pairs

    async def close(self, grace: float | None = None) -> None:
        """Closes the connection."""
        await self._connection.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """The state of the connection."""
        return self._connection.channel().get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Waits for a change of its state."""
        await self._connection.channel().wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Waits until it is connected."""
        await self._connection.channel().channel_ready()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _code(call: grpc.aio.Call) -> str:
    """How a call that is done ended. Its coroutine has nothing to wait for any more, so it needs no task."""
    asked: Coroutine[Any, Any, grpc.StatusCode] = call.code()
    try:
        asked.send(None)
    except StopIteration as answered:
        return str(answered.value.name)
    asked.close()
    return grpc.StatusCode.UNKNOWN.name


class _Pairs(grpc.aio.Metadata):
    """Metadata for sending only.

    gRPC's own sorts the pairs by key when it is made and takes them out again one by one when it is sent.

    Args:
        pairs: Keys and values, in order.
    """

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._pairs = tuple(pairs)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)


def _appended(
    stated: Iterable[Pair] | None, pairs: Sequence[Pair], always: Sequence[Pair] = ()
) -> Iterable[Pair] | None:
    """The metadata of a call.

    Args:
        stated: The metadata of the caller.
        pairs: Metadata to add, unless the caller states the key.
        always: Metadata to append always.
    """
    if not stated:
        return _Pairs((*pairs, *always)) if pairs or always else None
    given = tuple(stated)
    if not pairs and not always:
        return _Pairs(given)
    keys = {key for key, _ in given}
    return _Pairs((*given, *(pair for pair in pairs if pair[0] not in keys), *always))
