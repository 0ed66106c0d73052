"""Reads the bodies of requests within the limit of a message."""

from __future__ import annotations

import asyncio
import binascii
import re
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from aiohttp import StreamReader

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.errors import ServiceError, too_large
from dramaturg.service.threads import TenantThreads
from gateway.http.messages import UnreadableMessageError

COMPRESSED = 1
"""The flag of an enveloped message that is compressed."""
ENCODINGS = ("identity", "gzip")
_PREFIX = struct.Struct(">BI")
_GZIP = 16 + zlib.MAX_WBITS
_threads = TenantThreads(2, per_tenant=1)
_BASE64_PART = re.compile(rb"[A-Za-z0-9+/]+={0,2}")


def envelope(flags: int, data: bytes) -> bytes:
    """A message with its flags and its length before it."""
    return _PREFIX.pack(flags, len(data)) + data


class Body:
    """The body of a request.

    Args:
        content: Its bytes.
        limit: The most bytes of a message, before and after decompression.
        encoding: The encoding of compressed messages.
        caller: Identifies the caller, for turns in decompression.
        length: Its size. None: it is not known.

    Raises:
        ServiceError: UNIMPLEMENTED for an encoding other than gzip.
    """

    def __init__(
        self,
        content: StreamReader,
        limit: int,
        encoding: str,
        caller: str = "",
        length: int | None = None,
    ) -> None:
        self._length = length
        self._caller = caller
        self._content = content
        self._limit = limit
        if encoding not in ENCODINGS:
            raise ServiceError(
                grpc.StatusCode.UNIMPLEMENTED,
                error_reason_pb2.ERROR_REASON_NOT_IMPLEMENTED,
                f"the encoding {encoding[:50]!r} is not supported; supported are {', '.join(ENCODINGS)}",
            )
        self._gzip = encoding == "gzip"

    async def whole(self, seconds: float) -> bytes:
        """The body as one message.

        Args:
            seconds: The time in which it must arrive.

        Raises:
            ServiceError: It is too large, damaged or late.
        """
        async with _within(seconds):
            data = await self._read(self._limit, self._length)
        return await self._inflated(data) if self._gzip else data

    async def messages(self, *, seconds: float | None) -> AsyncIterator[bytes]:
        """The enveloped messages of the body.

        Args:
            seconds: The time in which each must arrive. None: no limit.

        Raises:
            ServiceError: A message is too large, damaged or late.
        """
        while True:
            async with _within(seconds):
                try:
                    flags, size = _PREFIX.unpack(await self._content.readexactly(_PREFIX.size))
                except asyncio.IncompleteReadError as error:
                    if error.partial:
                        raise _truncated() from None
                    return
                if size > self._limit:
                    raise too_large(self._limit, size)
                try:
                    data = await self._content.readexactly(size)
                except asyncio.IncompleteReadError:
                    raise _truncated() from None
            yield await self._opened(flags, data)

    async def text_messages(self, seconds: float) -> AsyncIterator[bytes]:
        """The enveloped messages of a body in base64, which may have padding at any fourth character."""
        async with _within(seconds):
            text = await self._read(self._limit * 4 // 3 + 1024, None)
        try:
            data = b"".join(binascii.a2b_base64(part) for part in _BASE64_PART.findall(text))
        except binascii.Error:
            raise UnreadableMessageError.of("the body is no base64") from None
        end = 0
        while end < len(data):
            start = end + _PREFIX.size
            if len(data) < start:
                raise _truncated()
            flags, size = _PREFIX.unpack_from(data, end)
            end = start + size
            if size > self._limit:
                raise too_large(self._limit, size)
            if len(data) < end:
                raise _truncated()
            yield await self._opened(flags, data[start:end])

    async def _opened(self, flags: int, data: bytes) -> bytes:
        if flags & ~COMPRESSED:
            raise UnreadableMessageError.of(f"a message has the unknown flags {flags}")
        if not flags & COMPRESSED:
            return data
        if not self._gzip:
            raise UnreadableMessageError.of("a message is compressed, and no encoding is named")
        return await self._inflated(data)

    async def _read(self, limit: int, length: int | None) -> bytes:
        parts: list[bytes] = []
        size = 0
        while part := await self._content.readany():
            size += len(part)
            if size > limit:
                raise too_large(self._limit, length)
            parts.append(part)
        return b"".join(parts)

    async def _inflated(self, data: bytes) -> bytes:
        if not data:
            return data
        return await _threads(self._caller, _inflate, data, self._limit)


def _inflate(data: bytes, limit: int) -> bytes:
    decompressor = zlib.decompressobj(_GZIP)
    try:
        inflated = decompressor.decompress(data, limit + 1)
    except zlib.error:
        raise UnreadableMessageError.of("a compressed message is no gzip") from None
    if len(inflated) > limit:
        raise too_large(limit, None)
    if not decompressor.eof or decompressor.unused_data:
        raise UnreadableMessageError.of("a compressed message is no single, complete gzip member")
    return inflated


def _truncated() -> UnreadableMessageError:
    return UnreadableMessageError.of("the body ends within a message")


@asynccontextmanager
async def _within(seconds: float | None) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise ServiceError(
            grpc.StatusCode.DEADLINE_EXCEEDED,
            error_reason_pb2.ERROR_REASON_DEADLINE_EXCEEDED,
            f"the body did not arrive within {seconds:g} s",
        ) from None
