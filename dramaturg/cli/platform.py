"""Reaches a gateway: one that runs somewhere, or one started in this process.

The services travel in a clone and in images, not in the wheel that other teams install. There the commands
that need them say so.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn, Protocol, TypeVar

import typer
from pydantic import ValidationError

from dramaturg.cli.terminal import Terminal, echo
from dramaturg.service.settings import SettingsError, explain

COMMANDS = "dramaturg.commands"
"""The entry points of commands that need the services."""
ABSENT = (
    "The services are not installed: they come with a clone of the repository (pip install -e '.[platform]') "
    "or an image. To use a gateway that runs elsewhere, name it with --target HOST:PORT."
)
UNFOLDED_WIDTH = 140
"""How wide tables may be in a file or a pipe, in characters."""
INTERRUPTED = 130
"""The exit code after Ctrl-C."""

Result = TypeVar("Result")


class _Overview(Protocol):
    @property
    def notice(self) -> str:
        """What the user should know of what was started."""


class UsageError(Exception):
    """The command cannot be carried out as it was given; the message says why. Exit code 2."""


def platform_commands() -> typer.Typer:
    """The commands that start services; where those are absent, commands of the same names that say so."""
    commands = typer.Typer()
    for entry in entry_points(group=COMMANDS):
        try:
            commands.add_typer(entry.load())
        except ModuleNotFoundError as error:
            if not _is_absent(entry, error):
                raise
    if not commands.registered_groups:
        for name in ("up", "serve"):
            commands.command(name, help="Starts services. Not available: they are not installed.")(_absent)
    return commands


@asynccontextmanager
async def gateway(
    target: str | None, roles: Sequence[str] = (), *, quiet: bool = False
) -> AsyncIterator[str]:
    """The address of the gateway to use: the target given, else one started here for as long as it is used.

    Args:
        target: Where a gateway runs. None: nowhere yet.
        roles: The roles that one started here must serve. Empty: all.
        quiet: Whether nothing is said of who judges there.

    Raises:
        UsageError: The services cannot be started.
    """
    if target is not None:
        yield target
        return
    console = Terminal(stderr=True)

    def announce(overview: _Overview) -> None:
        if overview.notice and not quiet:
            console.print(overview.notice, style="yellow")

    async with _local_platform(announce, roles) as local:
        yield local


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs a command's work on the fastest event loop there is.

    Raises:
        typer.Exit: 2 with a message for wrong usage or settings, 130 after Ctrl-C.
    """
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(work)
    except ValidationError as error:
        fail(explain(error))
    except (UsageError, SettingsError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def output() -> Terminal:
    """Standard output, for tables. In a file or a pipe nothing is folded for want of a terminal's width."""
    console = Terminal()
    return console if console.is_terminal else Terminal(width=max(console.width, UNFOLDED_WIDTH))


def fail(message: str, code: int = 2) -> NoReturn:
    """Ends the command with a message on standard error.

    Raises:
        typer.Exit: Always.
    """
    echo(message, err=True)
    raise typer.Exit(code)


def _local_platform(announce: Any, roles: Sequence[str]) -> AbstractAsyncContextManager[str]:
    for entry in entry_points(group=COMMANDS):
        try:
            module = importlib.import_module(entry.module)
        except ModuleNotFoundError as error:
            if not _is_absent(entry, error):
                raise
            continue
        if hasattr(module, "local_platform"):
            local: AbstractAsyncContextManager[str] = module.local_platform(announce, roles)
            return local
    raise UsageError(ABSENT)


def _is_absent(entry: EntryPoint, error: ModuleNotFoundError) -> bool:
    """Whether a command's own package is what was not found."""
    return error.name is not None and error.name.split(".")[0] == entry.module.split(".")[0]


def _absent() -> None:
    fail(ABSENT)
