"""Evaluation of what language models write, as swappable gRPC services.

The names below are imported when they are first used, so that ``import dramaturg`` is cheap:

- ``DramaturgClient``: the client of a gateway (``dramaturg.client``).
- ``ServiceError``: the error that its methods raise (``dramaturg.service.errors``).
- ``ChannelSettings``: TLS files and limits of a connection (``dramaturg.service.settings``).

Other public packages: ``dramaturg.api`` (messages and stubs), ``dramaturg.judge`` (the SDK for judges),
``dramaturg.service`` (servers and channels), ``dramaturg.conformance`` (checks of a running judge) and
``dramaturg.testing`` (fakes for tests).
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dramaturg.client import DramaturgClient
    from dramaturg.service.errors import ServiceError
    from dramaturg.service.settings import ChannelSettings

__all__ = ["ChannelSettings", "DramaturgClient", "ServiceError"]

# Must be set before gRPC is first imported. Nothing here forks after gRPC has started - worker processes are
# spawned - and gRPC's fork handlers would only print warnings about the fork that spawning begins with.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

_MODULES = {
    "ChannelSettings": "dramaturg.service.settings",
    "DramaturgClient": "dramaturg.client",
    "ServiceError": "dramaturg.service.errors",
}


def __getattr__(name: str) -> Any:
    """Imports a public name."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    """The public names, those not yet imported included."""
    return sorted({*globals(), *__all__})
