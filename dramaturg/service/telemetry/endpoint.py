"""Serves ``/metrics`` over HTTP, and nothing else.

On threads of its own: what is overloaded must still tell so.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

PATH = "/metrics"
_SLOWEST_CLIENT_SECONDS = 10


@contextmanager
def serve_metrics(host: str, port: int, registry: CollectorRegistry) -> Iterator[int]:
    """Serves a registry in Prometheus' text format; yields the port.

    Args:
        host: The address to listen on.
        port: The port; 0 takes a free one.
        registry: What is shown.

    Raises:
        OSError: The address cannot be listened on.
    """
    host = host.strip("[]")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        kind = _Server6 if family == socket.AF_INET6 else _Server
        server = make_server(host, port, _only_metrics(registry), kind, handler_class=_Handler)
    except OSError as error:
        raise OSError(f"metrics.port: cannot listen on {host}:{port}: {error.strerror}") from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _SLOWEST_CLIENT_SECONDS

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Logs no scrape."""

    def address_string(self) -> str:
        """The client's address, without asking anybody for its name."""
        return str(self.client_address[0])


def _only_metrics(registry: CollectorRegistry) -> Callable[[dict[str, Any], Any], Iterable[bytes]]:
    from prometheus_client import make_wsgi_app

    metrics = make_wsgi_app(registry)

    def application(environment: dict[str, Any], start: Any) -> Iterable[bytes]:
        if environment["PATH_INFO"] == PATH:
            return metrics(environment, start)  # type: ignore[no-any-return] # the package says Callable
        start("404 Not Found", [("Content-Type", "text/plain")])
        return [b"There is /metrics, and nothing else.\n"]

    return application
