"""What every ``dramaturg research convert`` refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dramaturg.cli.main import app

FORMATS = ("coscript", "proscript", "goyal", "simulbench")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("content", "problem"), [("", ("there are no rows", "is not JSON")), (None, ("No such",))]
)
def test_a_file_that_is_empty_or_absent_is_refused_and_replaces_nothing(
    tmp_path: Path, name: str, content: str | None, problem: tuple[str, ...]
) -> None:
    source, destination = tmp_path / "source.jsonl", tmp_path / "rows.jsonl"
    destination.write_text("kept", encoding="utf-8")
    if content is not None:
        source.write_text(content, encoding="utf-8")
    result = CliRunner().invoke(app, ["research", "convert", name, str(source), str(destination)])
    assert result.exit_code == 2, result.output
    assert any(text in result.stderr for text in problem)
    assert destination.read_text(encoding="utf-8") == "kept"
