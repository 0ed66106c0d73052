"""Channels of clients.

Calls are balanced over all addresses of the target, skip replicas that report not serving, are retried where
they never reached a handler, and carry the deadline and the request id of the call that they are made for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import grpc

from dramaturg.service.auth.credentials import token_value
from dramaturg.service.client_channel import ClientChannel
from dramaturg.service.connection import Connection
from dramaturg.service.settings import ChannelSettings
from dramaturg.service.tls import channel_credentials

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
