"""Another protocol in front of a server's contracts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import grpc

from dramaturg.service.auth.caller import Caller
from dramaturg.service.contract import Contract
from dramaturg.service.rpc import Metadata
from dramaturg.service.settings import ServerSettings


@dataclass(frozen=True)
class Backend:
    """The gRPC server that a front forwards calls to."""

    channel: grpc.aio.Channel
    """Connected to the server over a socket that other users of the machine cannot open. The server takes
    the caller's address from the metadata ``x-dramaturg-peer`` of these calls."""
    contracts: Sequence[Contract]
    """The contracts that the server serves."""
    settings: ServerSettings
    """The settings of the server."""
    authenticates: bool
    """Whether the server authenticates callers."""
    authenticate: Callable[[str, Metadata], bool]
    """Whether the credentials in the metadata of a call of a method are valid, or a certificate is needed in
    their place. The body of a request is read only then; the server decides itself."""
    find_caller: Callable[[Metadata], Caller | None]
    """Finds the caller with the credentials in the metadata of a call: ``ANONYMOUS`` where the server
    authenticates no callers, None for invalid credentials."""


class Front(Protocol):
    """Serves the contracts of a server over another protocol, by forwarding calls to it."""

    @property
    def host(self) -> str:
        """The address that it listens on."""

    async def start(self, backend: Backend) -> None:
        """Starts to listen, after the server has started.

        Raises:
            OSError: The address cannot be listened on.
            SettingsError: Its settings do not fit those of the server.
        """

    async def close(self) -> None:
        """Stops to listen. Requests that have arrived are still forwarded."""

    async def stop(self) -> None:
        """Waits for the calls in progress, up to the grace of the server, and takes no others."""
