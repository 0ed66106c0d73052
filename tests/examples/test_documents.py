"""The examples of the documents run as they are printed, against a gateway of ``dramaturg up``.

Only the port is replaced. Examples that need a tool are skipped where it is missing; with
DRAMATURG_DOCUMENTS=all, as in ``.ci/other-language``, they fail.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.command_line import COMMAND, ROOT
from tests.support.ports import free_port
from tests.support.processes import START_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

README = ROOT / "README.md"
DOCUMENTS = (ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "reference").glob("*.md")))
"""The other pages with code are run by ``test_pages``; of the README, what needs npx is run here."""
ADDRESS = "localhost:50051"
TASKS = ROOT / "examples" / "scripts" / "tasks.jsonl"
BUF = ROOT / ".tools" / "node_modules" / ".bin" / "buf"
ALL = os.environ.get("DRAMATURG_DOCUMENTS") == "all"


class Example(NamedTuple):
    """A fenced block."""

    document: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def examples(opening: str, documents: Sequence[Path]) -> list[Example]:
    found = []
    for document in documents:
        text = document.read_text(encoding="utf-8")
        for block in re.finditer(rf"^```{opening}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, block.start()) + 1
            found.append(Example(document.relative_to(ROOT).as_posix(), line, block[1]))
    return found


PYTHON, SHELL = examples("python", DOCUMENTS), examples('bash title="Needs npx"', [README])


class Gateway(NamedTuple):
    """A gateway without a model, a run that ended, and a folder with results."""

    port: int
    run_id: str
    folder: Path


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder, port = tmp_path_factory.mktemp("documents"), free_port()
    environment = {**os.environ, "XDG_DATA_HOME": str(folder), "PYTHONPATH": str(ROOT)}
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*COMMAND, "up", "--port", str(port)], cwd=folder, env=environment, stdout=log, stderr=log
        )
    try:
        until_serving(f"localhost:{port}", server, folder / "log")

        def command(*arguments: str) -> str:
            done = subprocess.run(
                [*COMMAND, *arguments, "--target", f"localhost:{port}", "--json"],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            # 4: without a model the coverage is low.
            assert done.returncode in {0, 4}, done.stderr
            return done.stdout

        command("eval", "--kind", "scripts", str(TASKS), "--limit", "2", "--out", "out/demo")
        listed = json.loads(command("runs", "list"))
        yield Gateway(port, listed["runs"][0]["id"], folder)
    finally:
        server.terminate()
        server.wait(60)


def until_serving(target: str, server: subprocess.Popen[bytes], log: Path) -> None:
    begun = time.monotonic()
    with grpc.insecure_channel(target) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            try:
                stub.Check(health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=1)
            except grpc.RpcError:
                assert server.poll() is None, log.read_text()
                assert time.monotonic() - begun < START_SECONDS, log.read_text()
            else:
                return


def test_there_are_examples() -> None:
    assert any(example.document == "docs/reference/api.md" for example in PYTHON)
    assert any("buf curl" in example.code for example in SHELL)


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").split()) <= 900


@pytest.mark.parametrize("example", PYTHON, ids=str)
def test_a_python_example_runs(gateway: Gateway, example: Example) -> None:
    code = example.code.replace(ADDRESS, f"localhost:{gateway.port}")
    done = subprocess.run(
        [sys.executable, "-c", code, gateway.run_id],
        cwd=gateway.folder,
        env={**os.environ, "DRAMATURG_TARGET": f"localhost:{gateway.port}"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    if ADDRESS in example.code:
        assert done.stdout, "it says nothing"


@pytest.mark.skipif(not ALL and not BUF.exists(), reason="buf is not installed: make lint installs it")
@pytest.mark.parametrize("example", SHELL, ids=str)
def test_a_shell_example_runs(gateway: Gateway, example: Example) -> None:
    shell = shutil.which("bash")
    assert shell is not None
    code = example.code.replace(ADDRESS, f"localhost:{gateway.port}").replace("npx @bufbuild/buf", str(BUF))
    done = subprocess.run(
        [shell, "-euo", "pipefail", "-c", code],
        cwd=gateway.folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "FINDING_KIND_DUPLICATE_STEP" in done.stdout
