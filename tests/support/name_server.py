"""A DNS server whose answers the test sets."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address
from typing import cast

_HEADER_BYTES = 12
_ANSWERED = 0x8580
"""A response of the server that is responsible for the name, without error."""
_A = 1
_INTERNET = 1
_NAME_OF_THE_QUESTION = 0xC00C


class NameServer(asyncio.DatagramProtocol):
    """Answers each question for an IPv4 address with the same addresses, and has no others.

    Attributes:
        addresses: The addresses.
    """

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses
        self._transport: asyncio.DatagramTransport | None = None

    def target(self, port: int) -> str:
        """A target of gRPC whose name this server resolves."""
        assert self._transport is not None
        own = self._transport.get_extra_info("sockname")[1]
        return f"dns://127.0.0.1:{own}/replicas.test:{port}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        end = data.index(b"\0", _HEADER_BYTES) + 5
        (kind,) = struct.unpack("!H", data[end - 4 : end - 2])
        found = self.addresses if kind == _A else []
        header = data[:2] + struct.pack("!HHHHH", _ANSWERED, 1, len(found), 0, 0)
        record = struct.pack("!HHHIH", _NAME_OF_THE_QUESTION, _A, _INTERNET, 0, 4)
        answers = b"".join(record + IPv4Address(address).packed for address in found)
        self._transport.sendto(header + data[_HEADER_BYTES:end] + answers, addr)


@asynccontextmanager
async def name_server(*addresses: str) -> AsyncIterator[NameServer]:
    """Serves names on a free port."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: NameServer(list(addresses)), local_addr=("127.0.0.1", 0)
    )
    try:
        yield server
    finally:
        transport.close()
