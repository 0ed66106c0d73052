"""``dramaturg up`` and ``dramaturg serve``: the commands that start services.

The command line finds this module through the entry point ``platform`` of the group "dramaturg.commands" and
uses ``app``, the commands, and ``local_platform``, which serves a gateway for the duration of a command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dramaturg.service.installed import (
    App,
    UnknownServiceError,
    backends,
    find_app,
    service_names,
    settings_type,
)
from dramaturg.service.server import run

if TYPE_CHECKING:  # a service in a separate process does not import the gateway
    from gateway.launch.platform import Overview

__all__ = ["app", "local_platform"]

app = typer.Typer()

Names = Annotated[
    list[str],
    typer.Argument(
        help=f"The services: {', '.join(service_names())}.", metavar="NAME...", show_default=False
    ),
]
Host = Annotated[
    str | None, typer.Option(help="The address to listen on. Default: DRAMATURG_SERVER_HOST, else 127.0.0.1.")
]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="The port to listen on. Default: DRAMATURG_SERVER_PORT, else 50051."),
]


@app.command("up")
def up(
    host: Host = None,
    port: Port = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="The port of HTTP and the console. 0: none. Default: that of the configuration, else "
            "50080, or a free port where that is in use.",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The file of the log, JSON; - is standard error. Default: standard error, or up.log in "
            "$XDG_STATE_HOME/dramaturg (~/.local/state/dramaturg) where that is a terminal.",
        ),
    ] = None,
) -> None:
    """Starts every service and the gateway in one process.

    The gateway listens on --host and --port, every other service on a separate loopback port. Its API is also
    served over HTTP, on loopback: at port 50080, or at a free port where that is in use. The web console is
    at the path /console/ of that port. Judges at addresses of this machine may be registered, unless
    judge_targets is set, the gateway listens elsewhere, or callers are authenticated. Every agent runs twice,
    as the judges "llm" and "offline"; "llm" is the default where a model is configured. The addresses are
    printed once all services accept calls. SIGTERM or Ctrl-C drains and stops the process. On a terminal the
    log is a file, and warnings are shown.

    For example:

        dramaturg up

        OPENAI_BASE_URL=http://localhost:8000/v1 MODEL=my-model dramaturg up --port 50051
    """
    from gateway.launch.platform import Platform

    file = None if log == Path("-") else log
    if log is None and sys.stderr.isatty():
        file = _default_log()
    announcement = _Announcement(file)
    if file is not None:
        sys.stderr.write("Starting the services ...\n")
    run(
        lambda: Platform(
            announce=announcement.services, http_port=http_port, announce_http=announcement.http
        ),
        _listen(host, port),
        log_file=file,
        announce=announcement.show,
    )


@app.command("serve")
def serve(
    names: Names,
    host: Host = None,
    port: Port = None,
    backend: Annotated[
        str | None,
        typer.Option(
            help="The backend of the services with several: llm or offline. Default: as configured, else llm."
        ),
    ] = None,
) -> None:
    """Starts services in one process.

    The first service listens on --port, each other one on the next port: judges of one contract have the same
    methods, and their callers know them by their addresses. With port 0 each takes a free port; the log names
    it.

    A service is configured by DRAMATURG_<NAME>_<SETTING> variables and by its table in the file that
    DRAMATURG_CONFIG names. Each judge of "gateway" is a table of gateway.judges.

    For example:

        dramaturg serve embedding --port 50061

        DRAMATURG_CRITIC_EMBEDDING_TARGET=localhost:50061 dramaturg serve critic --backend offline --port 0

        dramaturg serve generation critic execute commonsense --port 50051
    """
    if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise typer.BadParameter(f"{', '.join(repeated)}: name a service once", param_hint="NAME")
    try:
        services = {name: find_app(name) for name in names}
    except UnknownServiceError as error:
        raise typer.BadParameter(str(error), param_hint="NAME") from error
    kinds = {name: settings_type(service) for name, service in services.items()}
    choices = {name: backends(kind) for name, kind in kinds.items()}
    if backend is not None and (
        not any(choices.values()) or any(own and backend not in own for own in choices.values())
    ):
        known = "; ".join(f"of {name}: {', '.join(own) or 'none'}" for name, own in choices.items())
        raise typer.BadParameter(f"{backend!r}: the backends {known}", param_hint="--backend")

    def make() -> Sequence[App]:
        return [
            service(settings=kinds[name](**({"backend": backend} if backend and choices[name] else {})))
            for name, service in services.items()
        ]

    run(make, _listen(host, port))


def local_platform(
    announce: Callable[[Overview], None] | None = None,
    roles: Sequence[str] = (),
    run_store: Path | None = None,
) -> AbstractAsyncContextManager[str]:
    """Serves a gateway in this process (see ``gateway.launch.platform.local_platform``)."""
    from gateway.launch import platform

    return platform.local_platform(announce, roles, run_store)


def _listen(host: str | None, port: int | None) -> list[str]:
    arguments = [] if host is None else ["--host", host]
    return arguments if port is None else [*arguments, "--port", str(port)]


def _default_log() -> Path:
    """The log of ``up`` in the user's folder of states (XDG Base Directory Specification)."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "dramaturg" / "up.log"


class _Announcement:
    """What ``up`` prints: the services, a notice, and the addresses, that of the console last.

    Args:
        log: The file of the log. None: standard error.
    """

    def __init__(self, log: Path | None) -> None:
        self._log = log
        self._overview: Overview | None = None
        self._http = ""
        self._has_console = False
        self._has_moved = False

    def services(self, overview: Overview) -> None:
        self._overview = overview

    def http(self, url: str, has_console: bool, has_moved: bool) -> None:
        self._http, self._has_console, self._has_moved = url, has_console, has_moved

    def show(self, target: str) -> None:
        """Prints it, once everything listens.

        Args:
            target: The address of the gateway.
        """
        from rich.console import Console
        from rich.table import Table

        console = Console(highlight=False, soft_wrap=True)
        if self._overview is not None:
            table = Table("service", "backend", "address", box=None, pad_edge=False)
            for service in self._overview.services:
                table.add_row(service.name, service.backend, service.target)
            console.print(table)
            if self._overview.notice:
                console.print(f"\n{self._overview.notice}", soft_wrap=not console.is_terminal)
        http = self._http
        if self._has_moved:
            http += " (the default port is in use; --http-port sets one)"
        addresses = [("gRPC", target), ("HTTP", http), ("Log", str(self._log or ""))]
        if self._has_console:
            addresses.append(("Console", f"{self._http}/console/"))
        lines = [f"{name + ':':<9}{address}" for name, address in addresses if address]
        console.print("\n".join(["", "Ctrl-C stops the services.", *lines]), markup=False)
