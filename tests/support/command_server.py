"""Runs ``dramaturg`` as forks of one process that has imported it: imports take longer than most commands.

A command is asked for by a client, ``command_client.py``, which is the process that a test sees: it passes
its arguments, environment and standard streams on, and ends as the command ends. ``Fork`` needs no client.
The command is a process of its own with all that it has in a new interpreter, except that the modules of the
project are imported.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CLIENT = Path(__file__).with_name("command_client.py")
PACKAGES = ("dramaturg.cli", "gateway", "services", "dramaturg_research")
WITH_TORCH = ("services.edges.layers", "dramaturg_research.training")
"""What not even a command imports without need."""

_lock = threading.Lock()
_addresses: dict[Sequence[str], str] = {}


def command(*modules: str) -> list[str]:
    """What runs ``dramaturg``, with its arguments behind it; the first call starts the server.

    Args:
        modules: What the server imports besides.
    """
    return [sys.executable, "-I", "-S", str(CLIENT), _server(modules)]


class Fork:
    """A command that runs until it ends or the test does. It has the members of a process of asyncio.

    Attributes:
        pid: The number of its process.
        returncode: The exit code, or less a signal that ended it; None while it runs.
    """

    def __init__(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._reader, self._writer = reader, writer
        self._end = asyncio.create_task(self._read_end())

    @classmethod
    async def start(cls, arguments: Sequence[str], environment: Mapping[str, str], output: int) -> Fork:
        """Starts ``dramaturg`` in the repository's root.

        Args:
            arguments: Its arguments.
            environment: All its variables.
            output: The number of the file that both its streams go to.
        """
        task = {"arguments": arguments, "environment": dict(environment), "folder": str(ROOT)}
        connection = await asyncio.to_thread(_ask, json.dumps(task).encode(), output)
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        return cls(int(await reader.readline()), reader, writer)

    def send_signal(self, number: int) -> None:
        """Sends a signal to the process."""
        self._writer.write(bytes([number]))

    async def wait(self) -> int:
        """Waits for its end; returns the exit code."""
        return await asyncio.shield(self._end)

    async def _read_end(self) -> int:
        self.returncode = int(await self._reader.readline() or 1)
        self._writer.close()
        return self.returncode


def _ask(content: bytes, output: int) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(_server())
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        socket.send_fds(connection, [b"%d\n" % len(content)], [nothing.fileno(), output, output])
    connection.sendall(content)
    return connection


def _server(modules: Sequence[str] = ()) -> str:
    """The address of the server that has imported modules besides, which the first call starts."""
    with _lock:
        if modules not in _addresses:
            _addresses[modules] = _start(modules)
        return _addresses[modules]


def _start(modules: Sequence[str]) -> str:
    folder = tempfile.TemporaryDirectory(prefix="dramaturg-commands-")
    address = f"{folder.name}/socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    # It ends when nobody holds the other end of its standard input.
    server = subprocess.Popen(
        [sys.executable, "-m", __name__, str(listener.fileno()), *modules],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        pass_fds=[listener.fileno()],
    )
    listener.close()

    def stop() -> None:
        server.kill()
        server.wait()
        folder.cleanup()

    atexit.register(stop)
    return address


def _import_everything(modules: Sequence[str]) -> None:
    for name in modules:
        importlib.import_module(name)
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__") and not module.name.startswith(WITH_TORCH):
                importlib.import_module(module.name)
    threads = sorted(thread.read_text() for thread in Path("/proc/self/task").glob("*/comm"))
    # The allocator of pyarrow starts its own anew after a fork.
    assert len([one for one in threads if one != "jemalloc_bg_thd\n"]) == 1, (
        f"threads are not forked: {threads}"
    )
    gc.collect()
    gc.freeze()


class _Commands:
    """The commands under way, each known by its client's connection."""

    def __init__(self, listener: socket.socket) -> None:
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._processes: dict[socket.socket, tuple[int, int]] = {}
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(sys.stdin, selectors.EVENT_READ)

    def serve(self) -> dict[str, Any] | None:
        """Serves until nobody needs it. Returns in the process of each command too, with what it is to do."""
        while True:
            ready = [key for key, _ in self._selector.select()]
            # A killed client's command is killed before another one starts, as if both were one process.
            for key in sorted(ready, key=lambda key: key.fileobj is self._listener):
                if key.data is None:
                    return None
                task: dict[str, Any] | None = key.data(key.fileobj)
                if task is not None:
                    return task

    def _accept(self, listener: socket.socket) -> dict[str, Any] | None:
        client, _ = listener.accept()
        content, streams, _, _ = socket.recv_fds(client, 1 << 16, 3)
        if not content:
            client.close()
            return None
        size, _, begun = content.partition(b"\n")
        while len(begun) < int(size):
            begun += client.recv(1 << 16)
        process = os.fork()
        if process == 0:
            self._become_command(streams)
            return dict(json.loads(begun))
        for stream in streams:
            os.close(stream)
        with suppress(OSError):  # killed
            client.sendall(b"%d\n" % process)
        ended = os.pidfd_open(process)
        self._processes[client] = process, ended
        self._selector.register(client, selectors.EVENT_READ, self._signal)
        self._selector.register(ended, selectors.EVENT_READ, lambda _: self._end(client))
        return None

    def _become_command(self, streams: list[int]) -> None:
        self._selector.close()
        self._listener.close()
        for client, (_, ended) in self._processes.items():
            client.close()
            os.close(ended)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)

    def _signal(self, client: socket.socket) -> None:
        with suppress(ProcessLookupError):
            for number in client.recv(16) or [signal.SIGKILL]:
                os.kill(self._processes[client][0], number)
                if number == signal.SIGKILL:
                    self._end(client)

    def _end(self, client: socket.socket) -> None:
        process, ended = self._processes.pop(client)
        _, status = os.waitpid(process, 0)
        self._selector.unregister(client)
        self._selector.unregister(ended)
        os.close(ended)
        with suppress(OSError):
            client.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
        client.close()


def _unbuffered(stream: int, errors: str) -> io.TextIOWrapper:
    file: Any = io.FileIO(stream, "w", closefd=False)
    return io.TextIOWrapper(file, "utf-8", errors, write_through=True)


def _run(task: dict[str, Any]) -> None:
    """Runs a command where a new interpreter would run it."""
    os.environ.clear()
    os.environ.update(task["environment"])
    os.chdir(task["folder"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # As with PYTHONUNBUFFERED, which the tests set.
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
    sys.stdout, sys.stderr = _unbuffered(1, "strict"), _unbuffered(2, "backslashreplace")
    # The program replaces them, and would close them with the last reference.
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]
    from dramaturg import __main__ as program

    sys.modules["__main__"] = program
    sys.argv = [str(program.__file__), *task["arguments"]]
    code: Any = 0
    try:
        program.main()
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            raise
    _leave(code)


def _leave(code: int) -> None:
    """Ends the process as an interpreter does, except that it leaves objects to the kernel.

    To destroy them would copy every page of memory that the commands share: 0.2 s of the processor each.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        sys.exit(code)  # the interpreter tells
    os._exit(code)


if __name__ == "__main__":
    # Ctrl-C in a terminal reaches everybody; the tests end it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import_everything(sys.argv[2:])
    asked = _Commands(socket.socket(fileno=int(sys.argv[1]))).serve()
    if asked is not None:
        _run(asked)
