"""What the commands say to wrong input, without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dramaturg.cli.main import app
from tests.support.edges import write_card, write_scripts


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["research", "graphs", *(str(argument) for argument in arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    write_scripts(tmp_path / "scripts.json", 20)
    return tmp_path / "scripts.json"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    code, output = run("predict", tmp_path / "none.json", "-m", tmp_path, "-o", tmp_path / "p.json")
    assert (code, "none.json" in output) == (2, True)


def test_predicting_needs_a_model(scripts: Path, tmp_path: Path) -> None:
    code, output = run("predict", scripts, "-m", tmp_path, "-o", tmp_path / "p.json")
    assert (code, "graphs train" in output) == (2, True)
    write_card(tmp_path)
    code, output = run("predict", scripts, "-m", tmp_path, "-o", tmp_path / "p.json")
    assert (code, "model.safetensors" in output) == (2, True)


def test_torch_is_not_imported_before_it_is_needed() -> None:
    check = "import sys, services.edges.app, services.edges.commands; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
