"""The commands that start services, as a user sees them."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_line import COMMAND, dramaturg, finish, start

CODE = """
import sys
from gateway.launch.commands import find_app, settings_type
settings_type(find_app({service!r}))
print(*sys.modules)
"""


@pytest.mark.parametrize("service", ["critic", "embedding", "generation", "graph", "pair-judge"])
def test_a_service_does_not_import_the_gateway_or_its_neighbours(service: str) -> None:
    command = [sys.executable, "-c", CODE.format(service=service)]
    imported = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    found = {name for name in imported if name.startswith(("gateway.", "services."))}
    services = {".".join(name.split(".")[:2]) for name in found if name.startswith("services.")}
    assert len(services) == 1, services
    assert {name for name in found if name.startswith("gateway.")} == {
        "gateway.launch",
        "gateway.launch.commands",
    }
    assert not {"dbos", "sqlalchemy"} & {*imported} or service == "generation"


class Terminal:
    """A command on a terminal of its own.

    Attributes:
        shown: What the terminal has shown.
    """

    def __init__(self, *arguments: str, environment: dict[str, str]) -> None:
        self.shown = ""
        self._pid, self._file = pty.fork()
        if self._pid == 0:  # pragma: no cover - another process
            os.execvpe(COMMAND[0], [*COMMAND, *arguments], {**os.environ, "COLUMNS": "80", **environment})

    def read_until(self, is_shown: Callable[[str], bool]) -> None:
        """Reads until something is shown or the command has ended."""
        while not is_shown(self.shown):
            try:
                piece = os.read(self._file, 4096)
            except OSError:  # the other end is closed
                return
            self.shown += piece.decode().replace("\r\n", "\n")

    def press_ctrl_c(self) -> None:
        os.write(self._file, b"\x03")

    def wait(self) -> int:
        """Reads until the command ends; returns its exit code."""
        self.read_until(lambda shown: False)
        _, status = os.waitpid(self._pid, 0)
        os.close(self._file)
        return os.waitstatus_to_exitcode(status)


def folders(folder: Path) -> dict[str, str]:
    return {
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_STATE_HOME": str(folder / "state"),
        "DRAMATURG_RUNS_ENABLED": "true",
        "TERM": "dumb",
    }


@pytest.mark.slow
def test_up_on_a_terminal_shows_the_address_of_the_console_last_and_logs_to_a_file(tmp_path: Path) -> None:
    terminal = Terminal("up", "--port", "0", environment=folders(tmp_path))
    terminal.read_until(lambda shown: re.search(r"Console: .*\n", shown) is not None)
    lines = terminal.shown.splitlines()
    assert lines[0] == "Starting the services ..."
    assert "critic           offline  127.0.0.1:" in terminal.shown
    assert re.fullmatch(r"gRPC: {4}127\.0\.0\.1:\d+", lines[-4])
    assert lines[-2] == f"Log:     {tmp_path}/state/dramaturg/up.log"
    address = lines[-1].removeprefix("Console: ")
    with urllib.request.urlopen(address) as answer:
        assert b"There are no runs" in answer.read()
    terminal.press_ctrl_c()
    assert terminal.wait() == 0
    assert "Traceback" not in terminal.shown
    assert '{"time"' not in terminal.shown
    records = (tmp_path / "state" / "dramaturg" / "up.log").read_text().splitlines()
    messages = [json.loads(record)["message"] for record in records]
    assert "listening for HTTP" in messages
    assert messages[-1] == "stopped"


@pytest.mark.slow
async def test_up_without_a_terminal_logs_to_standard_error(tmp_path: Path) -> None:
    async with start("up", "--port", "0", environment=folders(tmp_path)) as process:
        assert process.stdout
        while not (await process.stdout.readline()).startswith(b"Console: "):
            assert not process.stdout.at_eof()
        process.terminate()
        finished = await finish(process)
    assert finished.code == 0
    assert all(json.loads(line)["level"] for line in finished.err.splitlines())
    assert not (tmp_path / "state").exists()


async def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    arguments = ("up", "--port", "0", "--log", tmp_path / "file" / "up.log")
    async with start(*arguments, environment=folders(tmp_path)) as process:
        finished = await finish(process)
    assert finished.code == 1
    assert f"{tmp_path}/file" in finished.err
    assert "Traceback" not in finished.err


@pytest.mark.parametrize(
    ("port", "probe_port", "message"),
    [
        ("65535", "0", "execute would listen on port 65536, which is none"),
        ("50051", "50052", "execute would listen on port 50052, which probes ask"),
    ],
)
async def test_each_service_of_a_process_needs_a_port(port: str, probe_port: str, message: str) -> None:
    environment = {"DRAMATURG_SERVER_PROBE_PORT": probe_port}
    done = await dramaturg("serve", "critic", "execute", "--port", port, environment=environment)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
