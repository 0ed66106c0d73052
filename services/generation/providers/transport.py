"""Posts bodies to one address, over connections that are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

MAX_RESPONSE_BYTES = 64 * 2**20
"""The longest response that is read. Log-probabilities of a long answer take some MiB."""

_JSON = "application/json"
# Less than the 5 s after which uvicorn, and so vLLM, closes a connection: no call shall meet one that closes.
_KEEP_ALIVE_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Response:
    """What came back, whatever its status."""

    status: int
    headers: Mapping[str, str]
    """Their names are looked up without regard to case."""
    content: bytes


class ResponseTooLongError(ValueError):
    """A response longer than MAX_RESPONSE_BYTES."""


class Transport:
    """Posts JSON to one address. Needs a running event loop.

    It is what the ``openai`` package's own transport is made of, without what the package puts around every
    call: with it a call takes 2.5 times the processor time (docs/generation.md).
    """

    def __init__(self, url: str, headers: Mapping[str, str], *, max_connections: int) -> None:
        """Opens nothing yet.

        Args:
            url: The address.
            headers: What is sent with every body, besides its type.
            max_connections: The most connections at once.
        """
        self._url = url
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=max_connections, keepalive_timeout=_KEEP_ALIVE_SECONDS),
            headers={"Accept": _JSON, "Content-Type": _JSON, **headers},
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        )

    async def post(self, body: bytes) -> Response:
        """Sends a body and reads the response. Sets no time limit.

        Raises:
            aiohttp.ClientError: No response came, or not the whole of it; a ClientConnectorError if nothing
                was sent.
            ResponseTooLongError: It is too long.
        """
        payload = aiohttp.BytesPayload(body, content_type=_JSON)
        response = await self._session.post(self._url, data=payload)
        try:
            content = await _read(response.content)
        except BaseException:
            response.close()
            raise
        # Read to its end, it has given its connection back.
        return Response(response.status, response.headers, content)

    async def close(self) -> None:
        """Closes the connections."""
        await self._session.close()


async def _read(stream: aiohttp.StreamReader) -> bytes:
    parts: list[bytes] = []
    length = 0
    while part := await stream.readany():
        length += len(part)
        if length > MAX_RESPONSE_BYTES:
            raise ResponseTooLongError(f"the response is longer than {MAX_RESPONSE_BYTES >> 20} MiB")
        parts.append(part)
        if stream.at_eof():
            break
    return b"".join(parts)
