"""The caller of the call that is being served, and the token of the calls that a service makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from dramaturg.service.files import ReloadingFile, read
from dramaturg.service.settings import ChannelSettings, SettingsError

TENANT_METADATA = "x-dramaturg-tenant"
"""The metadata key of the tenant that a service calls for. Ignored for other callers."""
TENANT_PATTERN = r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?"
"""The pattern of a tenant's name, 1 to 63 characters."""


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller, or [ANONYMOUS]."""

    principal: str
    """The principal, for example "ci@team-a" or a SPIFFE id. Empty: callers are not authenticated."""
    tenant: str
    """The tenant that the call is made for. Empty: none."""
    roles: frozenset[str]
    """The roles that the caller has (see ``permissions``)."""


ANONYMOUS = Caller("", "", frozenset())
"""The caller where callers are not authenticated."""

# A context variable: the interceptors of a channel, which pass the tenant on, get no argument for it.
_current: ContextVar[Caller] = ContextVar("dramaturg_caller", default=ANONYMOUS)


def current() -> Caller:
    """The caller of the call being served; ANONYMOUS outside of any."""
    return _current.get()


def enter(caller: Caller) -> None:
    """Makes ``caller`` the current one for the rest of the task."""
    _current.set(caller)


def tenant_of(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """The tenant that a call is made for. Empty where callers are not authenticated.

    Args:
        context: The call that is being served, in whose task this runs.
    """
    del context
    return _current.get().tenant


@contextmanager
def on_behalf_of(tenant: str) -> Iterator[None]:
    """Makes the calls within a ``with`` block on behalf of a tenant: for work that no call started."""
    token = _current.set(Caller("", tenant, frozenset()))
    try:
        yield
    finally:
        _current.reset(token)


AUTHORIZATION_METADATA = "authorization"
"""The metadata key of the bearer token (RFC 6750, section 2.1)."""
MAX_TOKEN_CHARACTERS = 7_000
"""The longest token of a call. Servers refuse metadata above 8 KiB."""


def token_value(target: str, settings: ChannelSettings) -> ReloadingFile[str] | None:
    """The value of ``token_header`` in calls to a target; ``None`` where the settings name no token.

    Raises:
        SettingsError: The token cannot be read, or would pass a network in plain text.
    """
    file = settings.token_file
    if file is None:
        return None
    if not settings.encrypted and not settings.token_over_plain_text and not is_loopback(target):
        raise SettingsError(
            f"the token of {ChannelSettings.variable('token_file')} would pass the network in plain text to "
            f"{target}: encrypt the connection, or set {ChannelSettings.variable('token_over_plain_text')}"
        )
    scheme = "Bearer " if settings.token_header == AUTHORIZATION_METADATA else ""
    return ReloadingFile([file], lambda: scheme + _token(file))


def is_loopback(target: str) -> bool:
    """Whether a target is on this machine, so that no data passes a network."""
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
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise SettingsError(f"{file} holds more than {MAX_TOKEN_CHARACTERS} characters, the longest token")
    return token
