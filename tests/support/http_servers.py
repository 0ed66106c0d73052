"""HTTP servers on this machine."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web


def everything(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.RouteDef:
    """Every method and path."""
    return web.route("*", "/{path:.*}", handler)


@asynccontextmanager
async def serve_http(
    *routes: web.RouteDef,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    cancelled: bool = False,
) -> AsyncIterator[str]:
    """Serves routes; yields the address.

    Args:
        routes: What is served: ``web.post("/v1/embeddings", handler)``.
        host: Where to listen.
        port: Where to listen; 0 takes a free one.
        tls: With it the server speaks TLS.
        cancelled: Whether a handler ends when its caller goes away.
    """
    application = web.Application(client_max_size=64 << 20)
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=cancelled)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls, backlog=4096).start()
        yield f"http{'s' if tls else ''}://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
