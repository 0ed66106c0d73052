"""What every command uses: a gateway, an event loop, standard output, and errors with their exit codes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Protocol, TypeVar

import typer
from pydantic import ValidationError

from dramaturg.cli.lazy_group import NO_PLATFORM, PLATFORM, external_module
from dramaturg.cli.terminal import Terminal, echo
from dramaturg.service.settings import SettingsError, explain

UNFOLDED_WIDTH = 140
"""The width of tables in a file or a pipe, in characters."""
PARTIAL = 4
"""The exit code of a run that ended at its budget, and of an evaluation with too low a coverage."""
INTERRUPTED = 130
"""The exit code after Ctrl-C."""

Result = TypeVar("Result")


class _Overview(Protocol):
    @property
    def notice(self) -> str:
        """A message to the user about the services that were started. Empty: none."""


class UsageError(Exception):
    """The command line or its input is wrong; the message says why. Exit code 2."""


@asynccontextmanager
async def gateway(
    target: str | None, roles: Sequence[str] = (), *, quiet: bool = False, run_store: Path | None = None
) -> AsyncIterator[str]:
    """Yields the address of a gateway: the target, or one that is started in this process.

    Args:
        target: The address of a running gateway. None: one is started, and stopped at the end.
        roles: The roles that the started gateway must serve. Empty: all.
        quiet: Whether the message about the judges of the started gateway is left out.
        run_store: The absolute path of the SQLite file of the started gateway's runs. None: no runs.

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

    async with _local_platform(announce, roles, run_store) as local:
        yield local


@contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables for services that are started meanwhile."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs a command's work in an event loop: uvloop's where it is installed, else asyncio's.

    Ctrl-C cancels the work. A second one ends the process at once with exit code 130, as SIGKILL would.

    Raises:
        typer.Exit: 2 with a message for wrong usage or settings, 130 after Ctrl-C.
    """
    try:
        import uvloop

        factory = uvloop.new_event_loop
    except ImportError:
        factory = None
    try:
        with _ended_by_a_second_interrupt(), asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(_interruptible(work))
    except ValidationError as error:
        fail(explain(error))
    except (UsageError, SettingsError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _ended_by_a_second_interrupt() -> Iterator[None]:
    """Restores at its end how SIGINT is handled."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


async def _interruptible(work: Coroutine[Any, Any, Result]) -> Result:
    """Has the handler of the event loop's runner, which cancels the work, handle the first SIGINT alone.

    Its second one raises KeyboardInterrupt in any callback of the event loop, also of native code.
    """
    cancel: Any = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, _end_at_once)
        cancel(number, frame)

    if callable(cancel) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)
    return await work


def _end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def output() -> Terminal:
    """Standard output, for tables. In a file or a pipe tables are at least ``UNFOLDED_WIDTH`` wide."""
    console = Terminal()
    return console if console.is_terminal else Terminal(width=max(console.width, UNFOLDED_WIDTH))


def fail(message: str, code: int = 2) -> NoReturn:
    """Ends the command with a message on standard error.

    Raises:
        typer.Exit: Always.
    """
    echo(message, err=True)
    raise typer.Exit(code)


def _local_platform(
    announce: Any, roles: Sequence[str], run_store: Path | None
) -> AbstractAsyncContextManager[str]:
    module = external_module(PLATFORM)
    if module is None:
        raise UsageError(NO_PLATFORM)
    local: AbstractAsyncContextManager[str] = module.local_platform(announce, roles, run_store)
    return local
