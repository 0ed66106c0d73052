"""The caller of the call that is being served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import grpc

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
