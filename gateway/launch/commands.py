"""``dramaturg up`` and ``dramaturg serve``: the commands that start services.

The command line finds this module through the entry point ``platform`` of the group "dramaturg.commands" and
uses ``app``, the commands, and ``local_platform``, which serves a gateway for the duration of a command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dramaturg.service.app import App
from dramaturg.service.installed import UnknownServiceError, backends, find_app, service_names, settings_type
from dramaturg.service.server import run

if TYPE_CHECKING:  # a service in a separate process does not import the gateway
    from gateway.launch.platform import Overview

__all__ = ["app", "local_platform"]

app = typer.Typer()

Name = Annotated[
    str,
    typer.Argument(help=f"The service: {', '.join(service_names())}.", metavar="NAME", show_default=False),
]
Host = Annotated[
    str | None, typer.Option(help="The address to listen on. Default: DRAMATURG_SERVER_HOST, else 127.0.0.1.")
]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="The port to listen on. Default: DRAMATURG_SERVER_PORT, else 50051."),
]


@app.command("up")
def up(host: Host = None, port: Port = None) -> None:
    """Starts every service and the gateway in one process.

    The gateway listens on --host and --port, every other service on a separate loopback port. Its API is also
    served over HTTP, on loopback: at port 50080, or at a free port where that is taken. The web console is at
    the path /console/ of that port. Every agent runs twice, as the judges "llm" and "offline"; "llm" is the
    default where a model is configured. SIGTERM or Ctrl-C drains and stops the process. Logs are JSON on
    standard error.

    For example:

        dramaturg up

        OPENAI_BASE_URL=http://localhost:8000/v1 MODEL=my-model dramaturg up --port 50051
    """
    from gateway.launch.platform import Platform

    run(lambda: Platform(announce=_announce, announce_http=_announce_http), _listen(host, port))


@app.command("serve")
def serve(
    name: Name,
    host: Host = None,
    port: Port = None,
    backend: Annotated[
        str | None,
        typer.Option(help="The backend of an agent: llm or offline. Default: as configured, else llm."),
    ] = None,
) -> None:
    """Starts one service in a separate process.

    It is configured by DRAMATURG_<NAME>_<SETTING> variables and by its table in the file that
    DRAMATURG_CONFIG names; the judges of "gateway" are its [[gateway.judges]].

    For example:

        dramaturg serve embedding --port 50061

        DRAMATURG_CRITIC_EMBEDDING_TARGET=localhost:50061 dramaturg serve critic --backend offline --port 0
    """
    try:
        service = find_app(name)
    except UnknownServiceError as error:
        raise typer.BadParameter(str(error), param_hint="NAME") from error
    kind = settings_type(service)
    if backend is not None and backend not in backends(kind):
        choices = ", ".join(backends(kind)) or "none"
        raise typer.BadParameter(f"{backend!r}: the backends of {name} are {choices}", param_hint="--backend")
    given = {} if backend is None else {"backend": backend}

    def make() -> App:
        return service(settings=kind(**given))

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


def _announce(overview: Overview) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table("service", "backend", "target", box=None)
    for service in overview.services:
        table.add_row(service.name, service.backend, service.target)
    console.print(table)
    if overview.notice:
        console.print(overview.notice)


def _announce_http(url: str, has_console: bool) -> None:
    from rich.console import Console

    lines = [f"HTTP: {url}", *([f"Console: {url}/console/"] if has_console else [])]
    Console().print("\n".join(lines), highlight=False, soft_wrap=True)
