"""Channels of clients.

Calls are balanced over all addresses of the target, skip replicas that report not serving, are retried where
they never reached a handler, and carry the deadline and the request id of the call that they are made for.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import grpc

from dramaturg.service import context
from dramaturg.service.auth import caller
from dramaturg.service.auth.caller import AUTHORIZATION_METADATA, token_value
from dramaturg.service.context import INFRASTRUCTURE
from dramaturg.service.files import ReloadingFile, channel_credentials, modification_times
from dramaturg.service.settings import ChannelSettings, SettingsError
from dramaturg.service.telemetry import instruments, tracing
from dramaturg.service.telemetry.instruments import (
    MADE,
    address_attributes,
    call_attributes,
    method_name,
    target_label,
)

logger = logging.getLogger(__name__)


class Connection:
    """The newest of several channels of gRPC to one target.

    The files are looked at before each call (a ``stat`` each). Calls in progress end on the channel that they
    began on.

    Args:
        connect: Opens a channel with the files as they are now.
        files: The certificates and keys. None: the channel is never replaced.
        grace: Seconds for the calls on a channel that was replaced.
    """

    def __init__(
        self, connect: Callable[[], grpc.aio.Channel], files: Sequence[Path], *, grace: float
    ) -> None:
        self._connect = connect
        self._files = files
        self._grace = grace
        self._times = modification_times(files)
        self._channel = connect()
        self._retiring: dict[grpc.aio.Channel, asyncio.Task[None]] = {}

    def channel(self) -> grpc.aio.Channel:
        """The channel for the next call."""
        if not self._files:
            return self._channel
        try:
            times = modification_times(self._files)
            if times == self._times:
                return self._channel
            channel = self._connect()
        except SettingsError:
            # Some of the files may be renewed, and some not yet.
            logger.exception("the client's certificate could not be read again")
            return self._channel
        old = self._channel
        self._retiring[old] = asyncio.get_running_loop().create_task(old.close(self._grace))
        self._retiring[old].add_done_callback(lambda _: self._retiring.pop(old, None))
        self._times, self._channel = times, channel
        return channel

    async def close(self, grace: float | None) -> None:
        """Closes the newest channel and those that it replaced."""
        for waiting in self._retiring.values():
            waiting.cancel()
        await asyncio.gather(*(channel.close(grace) for channel in (self._channel, *self._retiring)))


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
        attributes = {**call_attributes(method), **address_attributes(target)}
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
            if request.batch_until is not None:
                pairs.append((context.BATCH_METADATA, f"{request.batch_until:.6f}"))
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


SERVICE_CONFIG: dict[str, Any] = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "healthCheckConfig": {"serviceName": ""},
    # A "timeout" here would fire one to two seconds early and never reach the server: deadlines are given
    # call by call.
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                # The attempts take longer than the second in which a stopping server accepts no calls.
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
    "retryThrottling": {"maxTokens": 100, "tokenRatio": 0.1},
}
"""The service config (gRFC A2, A6) of every channel."""

LOOKUP_SECONDS = 10
"""How often a name is looked up at most. Replicas that come and go faster may all be unknown to a client."""


def open_channel(
    target: str,
    settings: ChannelSettings | None = None,
    *,
    interceptors: Sequence[grpc.aio.ClientInterceptor] = (),
) -> grpc.aio.Channel:
    """Opens a channel to a server, or to all replicas behind a name.

    A channel belongs to the event loop of its first call. Close it, or use it in ``async with``.

    Args:
        target: ``host:port`` or a gRPC name, for example ``dns:///critic.eval.svc:50051``. For several
        replicas
            the name must resolve to each one's address (on Kubernetes: a headless Service).
        settings: Certificates and limits; by default those of the environment.
        interceptors: Interceptors of gRPC, the first one outermost. They see each call as the channel makes
        it, with
            its deadline and metadata. One object may intercept several kinds of calls.

    Raises:
        SettingsError: A certificate or the token cannot be read, or the token would pass a network in plain
            text.
        ValueError: An interceptor is none of gRPC's.
    """
    settings = settings or ChannelSettings()
    options = _options(settings)
    token = token_value(target, settings)
    kinds = _one_kind_each(interceptors)

    def connect() -> grpc.aio.Channel:
        credentials = channel_credentials(settings)
        if credentials is None:
            return grpc.aio.insecure_channel(target, options=options, interceptors=kinds)
        return grpc.aio.secure_channel(target, credentials, options=options, interceptors=kinds)

    return ClientChannel(
        Connection(connect, settings.tls_files, grace=settings.timeout_seconds),
        target,
        timeout=settings.timeout_seconds,
        reserve=settings.deadline_reserve_seconds,
        token=token,
        token_header=settings.token_header,
    )


def _one_kind_each(interceptors: Sequence[grpc.aio.ClientInterceptor]) -> list[grpc.aio.ClientInterceptor]:
    """Interceptors of one kind of calls: of an object that has several kinds gRPC uses the first alone."""
    found: list[grpc.aio.ClientInterceptor] = []
    for interceptor in interceptors:
        kinds = [(base, name) for base, name in _KINDS if isinstance(interceptor, base)]
        if len(kinds) <= 1:
            found.append(interceptor)
            continue
        for base, name in kinds:
            adapter = type(f"{type(interceptor).__name__}_{name}", (base,), {name: None})()
            setattr(adapter, name, getattr(interceptor, name))
            found.append(adapter)
    return found


_KINDS: Final = (
    (grpc.aio.UnaryUnaryClientInterceptor, "intercept_unary_unary"),
    (grpc.aio.UnaryStreamClientInterceptor, "intercept_unary_stream"),
    (grpc.aio.StreamUnaryClientInterceptor, "intercept_stream_unary"),
    (grpc.aio.StreamStreamClientInterceptor, "intercept_stream_stream"),
)


def _options(settings: ChannelSettings) -> list[tuple[str, Any]]:
    options: list[tuple[str, Any]] = [
        ("grpc.service_config", json.dumps(SERVICE_CONFIG)),
        # DNS does not configure channels.
        ("grpc.service_config_disable_resolution", 1),
        # Services call each other and this machine, without the proxy for the web.
        ("grpc.enable_http_proxy", int(settings.http_proxy)),
        # Connections are a channel's own: shared ones would hand a new channel the backoff of an old one that
        # found no server at the address.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.keepalive_time_ms", round(settings.keepalive_seconds * 1000)),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.dns_min_time_between_resolutions_ms", LOOKUP_SECONDS * 1000),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 5_000),
    ]
    if settings.tls_server_name is not None:
        options.append(("grpc.ssl_target_name_override", settings.tls_server_name))
    return options
