"""Runs the code blocks of a page of the documentation, in their order.

A page has a folder of its own and free ports in place of those that it names. What follows the language of a
block decides what happens:

- ``title="NAME.EXT"``: the block is that file. Where the repository has it, it must be the same.
- ``title="In another terminal"``: the command runs until the end of the page.
- ``title="Needs a model"``: an HTTP server of the tests, which speaks the provider's protocol and passes all,
  is the model, also in place of the address ``http://localhost:8000/v1``.
- ``title="Needs a cluster"``: ``tests.support.command_cluster`` stands in for kubectl and helm.
- ``title="Needs ..."`` of ``NOT_RUN``: the block is not run, for a stated reason. Its commands and options
  have to exist.
- A block of the language ``text`` is the output of the block before it. ``...`` stands for anything.
- TOML must be what the settings accept; YAML and JSON must be readable.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main
import yaml

from dramaturg.cli.lazy_group import LazyCommand
from dramaturg.cli.main import app
from dramaturg.service.auth.settings import AuthSettings
from dramaturg.service.settings import Settings
from gateway.quotas.settings import QuotaSettings
from gateway.settings import GatewaySettings
from services.generation.settings import GenerationSettings
from tests.support import command_server
from tests.support.command_line import ROOT
from tests.support.openai_server import OpenAIServer, in_thread
from tests.support.ports import free_port
from tests.support.processes import START_SECONDS
from tests.support.scripted_model import approve

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
    *sorted((ROOT / "docs" / "operate").glob("*.md")),
]
LANGUAGES = {"bash", "python", "text", "csv", "toml", "yaml", "json", "typescript", "go"}
TERMINAL, NEEDS = "In another terminal", "Needs "
MODEL, CLUSTER = "Needs a model", "Needs a cluster"
NOT_RUN = {
    "Needs a clone": "installs into the checkout: `.ci/run`, `.ci/wheel` and test_demo do so",
    "Needs npx": "tests/examples/test_documents.py runs it where buf is installed",
    "Needs Node 20": "installs packages: `make test-typescript` builds and checks the judge",
    "Needs Go and protoc": "installs modules: `make test-go` builds and checks the judge",
    "Needs MLflow": "`make test-harnesses` logs results",
    "Needs MLflow and a gateway": "`make test-harnesses` runs the example",
    "Needs Inspect AI and a gateway": "`make test-harnesses` runs the example",
    "Needs Jupyter and a gateway": "`make test-harnesses` runs the notebook",
    "Needs promptfoo and a gateway": "`make test-harnesses` runs the example",
    "Needs Langfuse and a gateway": "`make test-harnesses` runs the example",
    "Needs a run and its labels": "people label: tests/dramaturg/cli/test_labels.py runs each command",
    "Needs a host that others reach": "serves beyond this machine",
    "Needs the judge that it names": "a partner's address: tests/dramaturg/cli/judges runs each command",
    "Needs a gateway with the judge critic=theirs": "a judge of others: tests/dramaturg/cli/judges has one",
    "Needs the judges that it names": "judges of others: tests/dramaturg/cli/judges runs each command",
    "Needs the file of weights": "a path of a cluster: tests/gateway/judges reads such a panel",
    "Needs a database": "tests/k8s/test_migration.py runs the command and grants the rights",
    "Needs Docker": "builds images for minutes",
    "Needs the file of a model": "downloads a model: tests/providers/test_small_servers.py has one",
}
"""Why blocks are not run, by their titles."""
_BLOCK = re.compile(r'^```(\w*)(?: title="([^"\n]*)")?([^\n]*)\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_PORT = re.compile(r"\b50\d\d\d\b")
_SECTIONS: dict[str, type[Settings]] = {
    "gateway": GatewaySettings,
    "generation": GenerationSettings,
    "auth": AuthSettings,
    "quotas": QuotaSettings,
}


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int
    language: str
    title: str
    code: str

    @property
    def is_file(self) -> bool:
        return bool(re.fullmatch(r"[\w./-]+\.\w+", self.title))


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for block in _BLOCK.finditer(text):
        language, title, rest, code = block.groups(default="")
        line = text.count("\n", 0, block.start()) + 1
        place = f"{page.relative_to(ROOT)}:{line}"
        assert language in LANGUAGES, f"{place}: the language is one of {sorted(LANGUAGES)}"
        assert not rest.strip(), f"{place}: after the language there is a title or nothing"
        found.append(Block(line, language, title, code))
    return found


def unknown_options(code: str) -> Iterator[str]:
    """The options, and the commands, of lines with ``dramaturg`` that there are not."""
    for line in code.replace("\\\n", " ").splitlines():
        called = re.search(r"(?:^|\(|&& )dramaturg ((?:[a-z]+(?= |$) ?)+)(.*)", line.partition("#")[0])
        command: Any = typer.main.get_command(app)
        for word in called[1].split() if called else ():
            if not hasattr(command, "commands") or (
                word not in command.commands and command.invoke_without_command
            ):
                break
            if word not in command.commands:
                yield line
                break
            member = command.commands[word]
            command = member.load() if isinstance(member, LazyCommand) else member
        known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
        given = re.findall(r"(?<=\s)--?[a-z][\w-]*", f" {called[2]}".partition(" -- ")[0] if called else "")
        yield from (f"{option}: {line}" for option in given if option not in known)


class Session:
    """A reader of a page: a folder, a shell with ``dramaturg``, and the servers that the page starts.

    Args:
        folder: The folder, which is empty.
        dramaturg: What the command runs. None: forks of a process that has imported it.

    Attributes:
        environment: The environment of the shell.
    """

    def __init__(self, folder: Path, dramaturg: Sequence[str] | None = None) -> None:
        self._folder = folder
        self._ports: dict[str, int] = {}
        self._servers: list[subprocess.Popen[bytes]] = []
        self._output = ""
        self._model = ExitStack()
        self._model_address = ""
        tools = folder / ".bin"
        tools.mkdir()
        command = " ".join(f"'{part}'" for part in dramaturg or command_server.command())
        stands_in = f"'{sys.executable}' -m tests.support.command_cluster"
        for name, called in (
            ("dramaturg", command),
            ("python", f"'{sys.executable}'"),
            ("kubectl", f"{stands_in} kubectl"),
            ("helm", f"{stands_in} helm"),
        ):
            (tools / name).write_text(f'#!/bin/sh\nexec {called} "$@"\n', encoding="utf-8")
            (tools / name).chmod(0o755)
        self.environment = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("OPENAI_", "MODEL", "DRAMATURG_"))
            },
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "XDG_DATA_HOME": str(folder / ".data"),
            "XDG_STATE_HOME": str(folder / ".state"),
            "COLUMNS": "120",
        }
        shutil.copytree(ROOT / "examples", folder / "examples")
        (folder / "k8s").symlink_to(ROOT / "k8s")

    def run(self, block: Block) -> None:
        """Does what the reader does with a block."""
        code = _PORT.sub(lambda port: self.moved(port[0]), block.code)
        if block.is_file:
            original = ROOT / block.title
            if original.exists():
                assert block.code == original.read_text(encoding="utf-8"), f"{block.title} is another text"
            (self._folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / block.title).write_text(code, encoding="utf-8")
        elif block.title == TERMINAL:
            self.start(code, self.moved(_PORT.findall(f"{block.code} 50051")[0]))
        elif block.language == "text":
            self._expect(block.code)
        elif block.title == MODEL:
            address = self._model_of_tests()
            code = f"export OPENAI_BASE_URL={address} MODEL=my-model\n{code}"
            self._output = self.call(block.language, code.replace("http://localhost:8000/v1", address))
        elif block.language in {"bash", "python"}:
            self._output = self.call(block.language, code)
        elif block.language == "toml":
            _accept(tomllib.loads(code), self._folder / ".settings.toml", code)
        elif block.language == "json":
            json.loads(code)
        else:
            assert block.language == "yaml", "it is a file, or it needs something"
            list(yaml.safe_load_all(code))

    def _model_of_tests(self) -> str:
        if not self._model_address:
            self._model_address = self._model.enter_context(in_thread(OpenAIServer(approve))).base_url
        return self._model_address

    def moved(self, port: str) -> str:
        """The free port in place of one that a page names."""
        return str(self._ports.setdefault(port, free_port()))

    def call(self, language: str, code: str) -> str:
        """Runs code that has to succeed, and returns its output."""
        shell = ["bash", "-euo", "pipefail", "-c", code]
        done = subprocess.run(
            shell if language == "bash" else [sys.executable, "-c", code],
            cwd=self._folder,
            # A program in Python calls the gateway of the page; commands have one of their own.
            env=self.environment
            | ({"DRAMATURG_TARGET": f"localhost:{self.moved('50051')}"} if language == "python" else {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def start(self, code: str, port: str) -> None:
        """Starts what runs until the end, and waits until it listens on a port."""
        # A group of its own, since a shell may have children.
        server = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", code],
            cwd=self._folder,
            env={
                "DRAMATURG_SERVER_PORT": self.moved("50051"),
                "DRAMATURG_GATEWAY_HTTP__PORT": self.moved("50080"),
                **self.environment,
            },
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._servers.append(server)
        begun = time.monotonic()
        while True:
            try:
                socket.create_connection(("127.0.0.1", int(port)), 1).close()
            except OSError:
                assert server.poll() is None, f"it ended: {code}"
                assert time.monotonic() - begun < 3 * START_SECONDS, f"it does not serve: {code}"
                time.sleep(0.05)
            else:
                return

    def _expect(self, text: str) -> None:
        """Checks that the output has the lines of the page, in their order."""
        rest = self._output
        for line in filter(None, map(str.strip, text.splitlines())):
            words = (re.escape(part.strip()).replace(r"\ ", r"\s+") for part in line.split("..."))
            found = re.search(".*?".join(words), rest)
            assert found, f"the output does not go on with {line!r}:\n{self._output}"
            rest = rest[found.end() :]

    def close(self) -> None:
        """Ends the servers."""
        self._model.close()
        for server in self._servers:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGTERM)
        for server in self._servers:
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def _accept(table: dict[str, Any], file: Path, code: str) -> None:
    """Reads the sections as the services do that have them."""
    file.write_text(code, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAMATURG_CONFIG", str(file))
        for section in table.keys() & _SECTIONS.keys():
            _SECTIONS[section]()
