"""Connections of HTTP: their encryption, and what is said and logged of requests that are not read."""

from __future__ import annotations

import logging
import ssl
from http import HTTPStatus
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from dramaturg.service import logs
from dramaturg.service.files import ReloadingFile
from dramaturg.service.settings import ServerSettings, SettingsError
from gateway.http.headers import peer_address
from gateway.http.settings import HttpSettings


def server_context(
    http: HttpSettings, server: ServerSettings, *, authenticates: bool
) -> ssl.SSLContext | None:
    """The TLS context of the HTTP server. None: plain text.

    The files are read again when they change. Without files of its own the HTTP server has those of the gRPC
    server.

    Args:
        http: The settings of the HTTP server.
        server: The settings of the gRPC server.
        authenticates: Whether callers are authenticated.

    Raises:
        SettingsError: A file cannot be read, or the HTTP server would be open to clients that the gRPC
            server's handshake refuses.
    """
    own = http.tls_certificate_file is not None
    source = http if own else server
    certificate, key, client_ca = (
        source.tls_certificate_file,
        source.tls_private_key_file,
        source.tls_client_ca_file,
    )
    if server.tls_client_ca_file is not None and client_ca is None and not authenticates:
        raise SettingsError(
            "gateway.http.tls_client_ca_file is needed: the gRPC server requires client certificates, and "
            "callers are not authenticated"
        )
    if certificate is None or key is None:
        return None
    files = [file for file in (certificate, key, client_ca) if file is not None]
    contexts = ReloadingFile(files, lambda: _load(certificate, key, client_ca))
    context = contexts.current()

    def renew(connection: ssl.SSLObject, name: str | None, initial: ssl.SSLContext) -> None:
        del name, initial
        connection.context = contexts.current()

    context.sni_callback = renew
    return context


def _load(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"the TLS files of gateway.http cannot be read: {error.strerror}") from error
    return context


refusals: Final = logging.getLogger(__name__)
"""The log of refused requests, and of faults of connections. All callers can cause them."""
logs.RateLimit(refusals)


class ConnectionServer(web.Server):
    """Serves connections. A request that breaks HTTP is answered, and logged, without a word of it."""

    def __call__(self) -> RequestHandler:
        return _Connection(self, loop=self._loop, logger=refusals, **self._kwargs)


class _Connection(RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        # aiohttp's messages quote the request, with its credentials.
        del message
        if isinstance(exc, HttpProcessingError):
            fields = {"fault": type(exc).__name__, "peer": peer_address(self.peername)}
            logs.write(refusals, logging.INFO, "malformed request", fields)
            text = "the request is no valid HTTP"
        else:
            refusals.error("a request failed", exc_info=exc)
            text = HTTPStatus(status).phrase
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the response is sent")
        headers = {"Server": "dramaturg", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
        response = web.Response(status=status, text=text, headers=headers)
        response.force_close()
        return response
