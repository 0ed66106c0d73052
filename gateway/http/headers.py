"""Headers of HTTP as metadata of gRPC, and back."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence

from aiohttp import web

from dramaturg.service.context import PEER_METADATA, Metadata
from dramaturg.service.errors import invalid

CONNECT_TIMEOUT = "Connect-Timeout-Ms"
GRPC_TIMEOUT = "Grpc-Timeout"
DETAILS_METADATA = "grpc-status-details-bin"

_MILLISECONDS = re.compile(r"[0-9]{1,10}")
_GRPC_TIME = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_KEY = re.compile(r"[0-9a-z_.-]+")
_VALUE = re.compile(r"[ -~]*")
_BINARY = "-bin"
# Headers of the connection, of the protocols and of browsers. The tenant is passed on: the gRPC server
# accepts it from services alone.
_OWN = frozenset(
    {
        "access-control-request-headers",
        "access-control-request-method",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "origin",
        "referer",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "x-grpc-web",
        "x-user-agent",
        PEER_METADATA,
    }
)
_OWN_PREFIXES = ("accept", "connect-", "grpc-", "proxy-", "sec-", ":")


def to_metadata(headers: Iterable[tuple[str, str]], peer: str) -> Sequence[tuple[str, str | bytes]]:
    """The metadata of a call.

    Args:
        headers: The headers of the request. Those that gRPC cannot carry are left out.
        peer: The address of the caller.

    Raises:
        ServiceError: INVALID_ARGUMENT for a binary header that is no base64.
    """
    metadata: list[tuple[str, str | bytes]] = [(PEER_METADATA, peer)]
    for name, value in headers:
        key = name.lower()
        if key in _OWN or key.startswith(_OWN_PREFIXES) or not _KEY.fullmatch(key):
            continue
        if key.endswith(_BINARY):
            metadata += [(key, _from_base64(key, part.strip())) for part in value.split(",")]
        elif _VALUE.fullmatch(value):
            metadata.append((key, value.strip()))
    return metadata


def to_headers(metadata: Metadata | None, prefix: str = "") -> Sequence[tuple[str, str]]:
    """Metadata of a response as headers. The details of an error are left out."""
    return [
        (prefix + key, to_base64(value) if isinstance(value, bytes) else str(value))
        for key, value in metadata or ()
        if key != DETAILS_METADATA
    ]


async def begin(
    request: web.BaseRequest, initial: Metadata, content_type: str, extra: Mapping[str, str]
) -> web.StreamResponse:
    """Begins the answer to a request, with the first metadata of its call and further headers."""
    headers = [*extra.items(), *to_headers(initial), ("Content-Type", content_type)]
    answer = web.StreamResponse(headers=headers)
    await answer.prepare(request)
    return answer


def peer_address(peername: object) -> str:
    """The address of a connection in the form of gRPC, for example "ipv4:127.0.0.1:1234"."""
    match peername:
        case (str(host), int(port)):
            return f"ipv4:{host}:{port}"
        case (str(host), int(port), *_):
            return f"ipv6:[{host}]:{port}"
    return "unknown"


def timeout_of(headers: Mapping[str, str], name: str) -> float | None:
    """The time limit that a caller states, in seconds. None: it states none.

    Raises:
        ServiceError: INVALID_ARGUMENT: it is no time.
    """
    value = headers.get(name)
    if value is None:
        return None
    if name == CONNECT_TIMEOUT and _MILLISECONDS.fullmatch(value):
        return int(value) / 1000
    if name == GRPC_TIMEOUT and (found := _GRPC_TIME.fullmatch(value)):
        return int(found[1]) * _UNITS[found[2]]
    raise invalid(f"metadata.{name.lower()}", f"is {value[:50]!r}, which is no time")


def to_base64(data: bytes) -> str:
    """Bytes in base64 without padding."""
    return base64.b64encode(data).decode().rstrip("=")


def _from_base64(key: str, text: str) -> bytes:
    try:
        return binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except (binascii.Error, ValueError):
        raise invalid(f"metadata.{key}", "is no base64") from None
