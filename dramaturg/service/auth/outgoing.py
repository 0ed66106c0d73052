"""Says on each call who makes it, and for which tenant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from dramaturg.service.auth.authenticator import AUTHORIZATION_METADATA
from dramaturg.service.auth.caller import TENANT_METADATA, current
from dramaturg.service.delegation import DelegatingChannel
from dramaturg.service.files import Reread, read
from dramaturg.service.metadata import added
from dramaturg.service.settings import ChannelSettings, SettingsError


class IdentifyingChannel(DelegatingChannel):
    """Adds the service's token, and the tenant of the call that is being served.

    Args:
        channel: Makes the calls.
        token: The token. ``None``: the certificate says who calls, or nothing does.
    """

    def __init__(self, channel: grpc.aio.Channel, token: Reread[str] | None) -> None:
        self._channel = channel
        self._token = token

    def behind(self) -> grpc.aio.Channel:
        """The channel that makes the calls."""
        return self._channel

    def delegate(self, make: Callable[[grpc.aio.Channel], Any]) -> Callable[..., Any]:
        """What makes the calls of one method."""
        make_call = make(self._channel)

        def call(*given: Any, metadata: Any = None, **options: Any) -> Any:
            if tenant := current().tenant:
                metadata = added(metadata, (TENANT_METADATA, tenant))
            if self._token is not None:
                bearer = f"Bearer {self._token.current()}"
                metadata = added(metadata, (AUTHORIZATION_METADATA, bearer))
            return make_call(*given, metadata=metadata, **options)

        return call


def identifying(target: str, settings: ChannelSettings) -> Callable[[grpc.aio.Channel], grpc.aio.Channel]:
    """What gives a channel to the target the identity that the settings name, and the tenant.

    Raises:
        SettingsError: The token cannot be read, or would pass a network in plain text.
    """
    in_plain_text = not settings.encrypted and not settings.token_over_plain_text
    if settings.token_file is not None and in_plain_text and not is_loopback(target):
        raise SettingsError(
            f"the token of {ChannelSettings.variable('token_file')} would pass the network in plain text to "
            f"{target}: encrypt the connection, or set {ChannelSettings.variable('token_over_plain_text')}"
        )
    file = settings.token_file
    token = None if file is None else Reread([file], lambda: _token(file))
    return lambda channel: IdentifyingChannel(channel, token)


def is_loopback(target: str) -> bool:
    """Whether a target is this machine: what is sent there passes no network."""
    address = target.removeprefix("dns:///").removeprefix("ipv4:").removeprefix("ipv6:")
    if target.startswith("unix:"):
        return True
    return all(
        one.rpartition(":")[0].strip("[]") in {"localhost", "127.0.0.1", "::1"} for one in address.split(",")
    )


def _token(file: Path) -> str:
    token = read(file).decode("ascii", errors="replace").strip()
    if not token or not token.isprintable() or " " in token or not token.isascii():
        raise SettingsError(f"{file} holds no token: one line of ASCII characters without blanks")
    return token
