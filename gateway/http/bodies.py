"""Bodies of HTTP: they are read within limits, and converted between JSON and Protobuf's binary form."""

from __future__ import annotations

import asyncio
import binascii
import json
import re
import struct
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

import grpc
from aiohttp import StreamReader
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.errors import ServiceError, invalid, too_many_bytes
from dramaturg.service.threads import TenantThreads
from dramaturg.service.validation import unknown_word

LARGE_BYTES = 32 * 1024
"""A larger message is converted in a thread, so that the event loop answers other calls."""

MAX_JSON_VALUES = 1_000_000
"""The most values of a JSON body. An empty object takes three bytes there and over a hundred in memory."""

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_UNKNOWN_FIELD = re.compile(r'has no field named "(?P<name>.*?)" at "(?P<path>.*?)"\.\n', re.DOTALL)
_UNREADABLE_FIELD = re.compile(r"Failed to parse (\w+) field: ")
_LONGEST_CAUSE = 300
_LONGEST_FIELD = 200

T = TypeVar("T")


class UnreadableMessageError(ServiceError):
    """A request is no message of its method."""

    @classmethod
    def of(
        cls, description: str, code: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT
    ) -> UnreadableMessageError:
        """The error with a description."""
        return cls(code, error_reason_pb2.ERROR_REASON_FIELD_INVALID, description)

    @classmethod
    def of_field(cls, field: str, description: str) -> UnreadableMessageError:
        """The error of one field."""
        error = invalid(field, description)
        return cls(
            error.code, error.reason, error.message, metadata=error.metadata, violations=error.violations
        )


class Codec(Protocol):
    """The form in which a caller writes and reads messages."""

    async def decode(self, data: bytes) -> bytes:
        """Returns a request in Protobuf's binary form.

        Raises:
            UnreadableMessageError: It is no message of the method.
        """

    async def encode(self, data: bytes) -> bytes:
        """Returns a response, given in Protobuf's binary form, in the caller's form.

        Raises:
            ServiceError: INTERNAL: it cannot be written in that form.
        """


class BinaryCodec:
    """Protobuf's binary form. The gRPC server checks the requests."""

    async def decode(self, data: bytes) -> bytes:
        return data

    async def encode(self, data: bytes) -> bytes:
        return data


class JsonCodec:
    """ProtoJSON. Fields without a value are left out of responses, and unknown fields refused in requests.

    Args:
        method: The method.
        caller: Identifies the caller, for turns in the conversion of large messages.
    """

    def __init__(self, method: MethodDescriptor, caller: str = "") -> None:
        self._caller = caller
        self._request = message_factory.GetMessageClass(method.input_type)
        self._response = message_factory.GetMessageClass(method.output_type)

    async def decode(self, data: bytes) -> bytes:
        return await self._run(len(data), lambda: _parse(data, self._request))

    async def encode(self, data: bytes) -> bytes:
        return await self._run(len(data), lambda: to_json(self._response.FromString(data)))

    async def _run(self, size: int, work: Callable[[], T]) -> T:
        return await in_turn(self._caller, size, work)


async def in_turn(caller: str, size: int, work: Callable[[], T]) -> T:
    """The result of work on a message; in a thread, in the caller's turn, if the message is large."""
    return work() if size <= LARGE_BYTES else await _threads(caller, work)


def parsed_object(data: bytes) -> dict[str, Any]:
    """The JSON object of a body.

    Raises:
        UnreadableMessageError: It is no object, or too large a one.
    """
    _check_values(data)
    try:
        found = json.loads(data.decode())
    except UnicodeDecodeError:
        raise UnreadableMessageError.of("the body is not encoded in UTF-8") from None
    except (RecursionError, ValueError) as error:
        raise UnreadableMessageError.of(f"the body is no JSON: {type(error).__name__}") from None
    if not isinstance(found, dict):
        raise UnreadableMessageError.of("the body is no JSON object")
    return found


def to_json(message: Message) -> bytes:
    """A message as ProtoJSON, on one line.

    Raises:
        ServiceError: INTERNAL: it holds a value that JSON cannot state.
    """
    try:
        return json_format.MessageToJson(message, indent=None, ensure_ascii=False).encode()
    except json_format.SerializeToJsonError as error:
        raise ServiceError(
            grpc.StatusCode.INTERNAL,
            error_reason_pb2.ERROR_REASON_INTERNAL,
            "the response holds a value that JSON cannot state: ask for Protobuf's binary form",
        ) from error


def _check_values(data: bytes) -> None:
    if len(data) > MAX_JSON_VALUES:
        bare = _STRING.sub(b"", data)
        if bare.count(b",") + bare.count(b":") + bare.count(b"{") + bare.count(b"[") > MAX_JSON_VALUES:
            raise UnreadableMessageError.of(f"the body is JSON of more than {MAX_JSON_VALUES:,} values")


def _parse(data: bytes, kind: type[Message]) -> bytes:
    name = kind.DESCRIPTOR.full_name
    # An empty list would be read as an empty message.
    if not data.lstrip().startswith(b"{"):
        raise UnreadableMessageError.of(f"the body is no JSON of {name}: it is no object")
    _check_values(data)
    try:
        return json_format.Parse(data.decode(), kind()).SerializeToString()
    except UnicodeDecodeError:
        raise UnreadableMessageError.of("the body is not encoded in UTF-8") from None
    except json_format.ParseError as error:
        cause = str(error)
        if found := _UNKNOWN_FIELD.search(cause):
            parent = found["path"].partition(".")[2]
            field = f"{parent}.{found['name']}" if parent else found["name"]
            raise UnreadableMessageError.of_field(field[:_LONGEST_FIELD], f"is no field of {name}") from None
        if path := _UNREADABLE_FIELD.findall(cause):
            fault = _UNREADABLE_FIELD.sub("", cause)
            field = ".".join(path)[:_LONGEST_FIELD]
            description = unknown_word(fault) or f"cannot be read: {fault[:_LONGEST_CAUSE].rstrip('.')}"
            raise UnreadableMessageError.of_field(field, description) from None
        raise UnreadableMessageError.of(f"the body is no JSON of {name}: {cause[:_LONGEST_CAUSE]}") from None
    # Deeply nested JSON, numbers beyond every type, and texts that are no Unicode.
    except (RecursionError, ValueError, TypeError, DecodeError, EncodeError, AttributeError) as error:
        raise UnreadableMessageError.of(f"the body is no JSON of {name}: {type(error).__name__}") from None


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
                    raise too_many_bytes(self._limit, size)
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
                raise too_many_bytes(self._limit, size)
            if len(data) < end:
                raise _truncated()
            yield await self._opened(flags, data[start:end])

    async def _opened(self, flags: int, data: bytes) -> bytes:
        if flags & ~COMPRESSED:
            raise UnreadableMessageError.of(f"a message has the unknown flags {flags}")
        if not flags & COMPRESSED:
            return data
        if not self._gzip:
            description = "a message is compressed, and no encoding is named"
            raise UnreadableMessageError.of(description, grpc.StatusCode.INTERNAL)  # as the protocols demand
        return await self._inflated(data)

    async def _read(self, limit: int, length: int | None) -> bytes:
        parts: list[bytes] = []
        size = 0
        while part := await self._content.readany():
            size += len(part)
            if size > limit:
                raise too_many_bytes(self._limit, length)
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
        raise too_many_bytes(limit, None)
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
