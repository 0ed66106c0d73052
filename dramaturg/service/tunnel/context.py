"""What a servicer sees of a call that a tunnel carries."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from dramaturg.api.tunnel.v1.tunnel_service_pb2 import Call
from dramaturg.service.metadata import Pair
from dramaturg.service.tunnel.metadata import unpack

if TYPE_CHECKING:
    from dramaturg.service.interceptors.calls import Context
else:
    Context = grpc.aio.ServicerContext


_CODES = {code.value[0]: code for code in grpc.StatusCode}


def status_code(number: int) -> grpc.StatusCode:
    """The status code of a number; UNKNOWN for one that gRPC does not have."""
    return _CODES.get(number, grpc.StatusCode.UNKNOWN)


class CarriedContext(Context):
    """A unary call within a tunnel: its own deadline, metadata and status, the tunnel's peer.

    Args:
        tunnel: The call that is the tunnel.
        call: The call that it carries.
    """

    def __init__(self, tunnel: Context, call: Call) -> None:
        self._tunnel = tunnel
        self._metadata = unpack(call.metadata)
        self._deadline: float | None = None
        if call.HasField("timeout"):
            self._deadline = time.monotonic() + call.timeout.seconds + call.timeout.nanos / 1e9
        self._code = grpc.StatusCode.OK
        self._details = ""
        self._trailing: tuple[Pair, ...] = ()

    def invocation_metadata(self) -> Any:
        """What came with the call."""
        return self._metadata

    def time_remaining(self) -> float:
        """Seconds until the deadline, at least 0; None where the caller gave none."""
        # The stub's type leaves out None.
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())  # type: ignore[return-value]

    def peer(self) -> str:
        """The address of who opened the tunnel."""
        return self._tunnel.peer()

    def peer_identities(self) -> Iterable[bytes] | None:
        """Those of who opened the tunnel."""
        return self._tunnel.peer_identities()

    def peer_identity_key(self) -> str | None:
        """That of who opened the tunnel."""
        return self._tunnel.peer_identity_key()

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """The certificate of who opened the tunnel."""
        return self._tunnel.auth_context()

    def code(self) -> grpc.StatusCode:
        """The status code, as it stands."""
        return self._code

    def details(self) -> str:
        """What is said of the status, as it stands."""
        return self._details

    def trailing_metadata(self) -> Any:
        """What is sent after the response, as it stands."""
        return self._trailing

    def set_code(self, code: grpc.StatusCode | int) -> None:
        """Sets the status code; gRPC takes its number too."""
        self._code = code if isinstance(code, grpc.StatusCode) else status_code(code)

    def set_details(self, details: str) -> None:
        """Sets what is said of the status."""
        self._details = details

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Sets what is sent after the response."""
        self._trailing = tuple((str(key), value) for key, value in trailing_metadata)

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        """Ends the call with a status.

        Raises:
            grpc.aio.AbortError: Always.
        """
        self.set_code(code)
        self._details = details or self._details
        if trailing_metadata:
            self.set_trailing_metadata(trailing_metadata)
        raise grpc.aio.AbortError("the call was aborted")

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        """Ends the call with a status.

        Raises:
            grpc.aio.AbortError: Always.
        """
        known: Any = status  # the stub's class has no members
        await self.abort(known.code, known.details, known.trailing_metadata)

    def cancelled(self) -> bool:
        """Whether the tunnel was given up; a call that is given up alone is told by its task."""
        return self._tunnel.cancelled()

    def done(self) -> bool:
        """Whether the tunnel has ended."""
        return self._tunnel.done()

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Does nothing: a tunnel has none for its calls."""

    def set_compression(self, compression: grpc.Compression) -> None:
        """Does nothing: messages are compressed as those of the tunnel are."""

    def disable_next_message_compression(self) -> None:
        """Does nothing: messages are compressed as those of the tunnel are."""

    async def read(self) -> Any:
        """Not for unary calls.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError

    async def write(self, message: Any) -> None:
        """Not for unary calls.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError
