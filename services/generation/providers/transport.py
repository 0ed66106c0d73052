"""Requests to one endpoint, over connections that are kept."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from dramaturg.service import context
from dramaturg.service.telemetry import tracing

MAX_RESPONSE_BYTES = 64 * 2**20
"""The longest response that is read. Log-probabilities of a long answer take some MiB."""
MAX_REDIRECTS = 3

_REQUEST_ID = "X-Client-Request-Id"
"""The header of the request id. vLLM takes X-Request-Id as the identity of a call, and refuses a call while
another has it; the calls of a batch have one request id.
"""
_JSON = "application/json"
_REDIRECTS = frozenset({301, 302, 307, 308})
# Less than the 5 s after which uvicorn, and so vLLM, closes a connection: no call shall meet one that closes.
_KEEP_ALIVE_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Response:
    """A response of any status."""

    status: int
    headers: Mapping[str, str]
    """Their names are looked up without regard to case."""
    content: bytes


@dataclass(frozen=True, slots=True)
class Access:
    """How an endpoint is reached, besides its address."""

    headers: Mapping[str, str] = field(default_factory=dict)
    changing: Callable[[], Mapping[str, str]] = dict
    """Headers that may change: asked for with every request."""
    renew: Callable[[], Awaitable[Mapping[str, str]]] | None = None
    """Headers that take time to renew: awaited with every request. None: there are none."""
    query: Mapping[str, str] = field(default_factory=dict)
    ca_file: Path | None = None
    """The certificates that are trusted in place of the system's, as PEM. None: the system's."""
    client_certificate: Path | None = None
    client_key: Path | None = None
    idle_seconds: float = 60.0
    """The longest that a streamed answer may pause."""

    def ssl_context(self) -> ssl.SSLContext | None:
        """The context for TLS; None for the default one.

        Raises:
            OSError: a file cannot be read or is no certificate or key (ssl.SSLError is one).
        """
        if self.ca_file is None and self.client_certificate is None:
            return None
        context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
        if self.client_certificate is not None:
            context.load_cert_chain(self.client_certificate, self.client_key)
        return context


class ResponseTooLongError(ValueError):
    """A response longer than MAX_RESPONSE_BYTES."""


class RedirectError(ValueError):
    """A redirect that is not followed; the message says where to."""


class Transport:
    """Sends requests to one endpoint, with the trace context and the request id. Needs a running event loop.

    aiohttp alone: a call through the ``openai`` package takes 2.5 times the processor time
    (docs/operate/generation.md).
    """

    def __init__(self, base_url: str, access: Access | None = None, *, max_connections: int = 1000) -> None:
        """Opens nothing yet.

        Args:
            base_url: The address, to which paths are added; its query is sent with every request.
            access: How the endpoint is reached. None: without anything besides.
            max_connections: The most connections at once.

        Raises:
            OSError: a certificate or key cannot be used.
        """
        access = access or Access()
        url = URL(base_url)
        self._query = {**dict(url.query), **access.query}
        self._base = url.with_query(None).with_fragment(None)
        self._urls: dict[str, URL] = {}
        self._idle = aiohttp.ClientTimeout(total=None, sock_connect=None, sock_read=access.idle_seconds)
        proxy, for_proxy = _proxy(self._base)
        # A proxy reads the request itself, unless the request goes through a tunnel.
        tunnelled = self._base.scheme == "https"
        self._proxy_headers = for_proxy if tunnelled else None
        self._changing = access.changing
        self._renew = access.renew
        self._unlimited = aiohttp.ClientTimeout(total=None, sock_connect=None)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=max_connections, keepalive_timeout=_KEEP_ALIVE_SECONDS, ssl=access.ssl_context() or True
            ),
            headers={"Accept": _JSON, **access.headers, **({} if tunnelled else for_proxy)},
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=self._unlimited,
            proxy=proxy,
        )

    async def post(self, path: str, body: bytes, *, streamed: bool = False) -> Response:
        """Sends a body and reads the response. Sets no time limit on the whole.

        Args:
            path: Where to, below the base address.
            body: JSON.
            streamed: Whether the response comes bit by bit, so that a pause is limited.

        Raises:
            aiohttp.ClientError: No response came, or not the whole of it; a ClientConnectorError if nothing
                was sent.
            TimeoutError: A streamed response paused for too long.
            ResponseTooLongError: It is too long.
            RedirectError: It is a redirect that is not followed.
        """
        return await self._send("POST", self._url(path), body, streamed=streamed)

    async def get(self, path: str) -> Response:
        """Reads the resource at ``path`` below the base address. Raises as [post] does."""
        return await self._send("GET", self._url(path), None)

    async def close(self) -> None:
        await self._session.close()

    def _url(self, path: str) -> URL:
        url = self._urls.get(path)
        if url is None:
            url = self._base.with_path(self._base.path.rstrip("/") + path)
            url = self._urls[path] = url.with_query(self._query) if self._query else url
        return url

    async def _send(self, method: str, url: URL, body: bytes | None, *, streamed: bool = False) -> Response:
        served = context.current()
        headers = {**(tracing.headers() or {}), **self._changing()}
        if self._renew is not None:
            headers |= await self._renew()
        if served is not None and served.request_id:
            headers[_REQUEST_ID] = served.request_id
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._session.request(
                method,
                url,
                data=None if body is None else aiohttp.BytesPayload(body, content_type=_JSON),
                headers=headers,
                allow_redirects=False,
                proxy_headers=self._proxy_headers,
                timeout=self._idle if streamed else self._unlimited,
            )
            try:
                content = await _read(response.content)
            except BaseException:
                response.close()
                raise
            # Read to its end, it has given its connection back.
            if response.status not in _REDIRECTS:
                return Response(response.status, response.headers, content)
            url = _redirected(url, response.headers.get("Location", ""))
        raise RedirectError(f"more than {MAX_REDIRECTS} redirects")


def _redirected(url: URL, location: str) -> URL:
    """Where a redirect leads, which must be on the same host and not away from TLS."""
    try:
        target = url.join(URL(location))
    except ValueError:
        raise RedirectError("the address of a redirect cannot be read") from None
    same = target.host == url.host and (target.port == url.port or target.scheme != url.scheme)
    if not location or not same or (url.scheme == "https" and target.scheme != "https"):
        raise RedirectError(
            f"redirects to {target.origin() if target.is_absolute() else location}, which is not followed"
        )
    return target


def _proxy(url: URL) -> tuple[str | None, dict[str, str]]:
    """The proxy that HTTP_PROXY, HTTPS_PROXY and NO_PROXY name for an address, and the headers for it."""
    address = getproxies().get(url.scheme) or getproxies().get("all")
    if not address or not url.host or proxy_bypass(f"{url.host}:{url.port}") or proxy_bypass(url.host):
        return None, {}
    proxy = URL(address if "://" in address else f"http://{address}")
    if not proxy.user:
        return str(proxy), {}
    credentials = b64encode(f"{proxy.user}:{proxy.password or ''}".encode()).decode()
    return str(proxy.with_user(None)), {"Proxy-Authorization": f"Basic {credentials}"}


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
