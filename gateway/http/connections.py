"""Connections of HTTP: what is said and logged of requests that are not read."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from dramaturg.service import logs
from gateway.http.headers import peer_address

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
