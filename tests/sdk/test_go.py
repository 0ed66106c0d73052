"""The package for Go: a client evaluates a script with the judge of the package.

``make test-go`` builds the package and runs this module.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dramaturg.testing import RegisteredJudge, serve_gateway
from tests.sdk.test_judges import GO, terse_critic

pytestmark = pytest.mark.go

ROOT = Path(__file__).resolve().parents[2]
EVALUATE = ROOT / ".tools" / "go" / "bin" / "evaluate"


async def evaluate(target: str, goal: str, text: str) -> tuple[int, str, str]:
    """The exit status, the output and the errors of the client of the example."""
    program = await asyncio.create_subprocess_exec(
        EVALUATE,
        target,
        goal,
        "critic",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await program.communicate(text.encode())
    assert program.returncode is not None
    return program.returncode, output.decode(), errors.decode()


async def test_a_client_prints_verdicts_and_errors() -> None:
    async with (
        terse_critic(GO) as (judge, _),
        serve_gateway(RegisteredJudge("critic", judge, "terse")) as gateway,
    ):
        status, output, errors = await evaluate(
            gateway.target, "Make tea", "1. Heat water. 2. Put a tea bag in a cup. 3. Heat water."
        )
        refused = await evaluate(gateway.target, " ", "1. Heat water.")
    assert (status, errors) == (0, "")
    assert "no_duplicate_steps\tOUTCOME_FAIL\n\tsteps [0 2]: " in output
    assert refused[0] == 1
    assert "task.goal is required" in refused[2]
    assert "ERROR_REASON_FIELD_INVALID: " in refused[2]


def test_the_published_module_compiles_under_its_path(tmp_path: Path) -> None:
    path = "example.com/dramaturg/sdk/go"
    build = (ROOT / ".ci" / "dist.py", tmp_path, "--go-module", path, "--version", "0.1.0")
    subprocess.run([sys.executable, *build], check=True)
    (packed,) = tmp_path.glob("*.zip")
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path)
    unpacked, folder = tmp_path / f"{path}@v0.1.0", tmp_path / "src" / path
    assert f"module {path}\n" in (unpacked / "go.mod").read_text()
    assert "google.golang.org/grpc v" in (unpacked / "go.mod").read_text()
    folder.parent.mkdir(parents=True)
    unpacked.rename(folder)
    # Debian's libraries are no modules.
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": f"{tmp_path}:/usr/share/gocode"}
    subprocess.run(["go", "vet", "./..."], cwd=folder, env=environment, check=True)
