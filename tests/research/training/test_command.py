"""What the commands say to wrong input, without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dramaturg.cli.main import app
from services.edges import encoder
from tests.support.edges import write_scripts


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["research", "graphs", *(str(argument) for argument in arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    write_scripts(tmp_path / "scripts.json", 20)
    return tmp_path / "scripts.json"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    code, output = run("train", tmp_path / "none.json", "-o", tmp_path / "m", "--encoder", "e")
    assert (code, "none.json" in output) == (2, True)


def test_too_few_scripts(tmp_path: Path) -> None:
    write_scripts(tmp_path / "one.json", 1)
    code, output = run("train", tmp_path / "one.json", "-o", tmp_path / "m", "--encoder", "e")
    assert (code, "1 usable scripts" in output) == (2, True)


def test_a_setting_out_of_its_range_is_named(scripts: Path, tmp_path: Path) -> None:
    code, output = run("train", scripts, "-o", tmp_path / "m", "--encoder", "e", "--holdout", "0.9")
    assert (code, "holdout" in output) == (2, True)
    code, output = run("train", scripts, "-o", tmp_path / "m", "--encoder", "e", "--max-length", "7")
    assert (code, "max_length" in output) == (2, True)


def test_without_the_extra(scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "find_spec", lambda name: None)
    code, output = run("train", scripts, "-o", tmp_path / "m", "--encoder", "e")
    assert code == 2
    assert encoder.INSTALL_COMMAND in output
    assert not (tmp_path / "m").exists()


def test_torch_is_not_imported_before_it_is_needed() -> None:
    check = "import sys, dramaturg_research.training.command; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
