"""``dramaturg labels align``, run in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from dramaturg.cli.align import app


def run(*arguments: str) -> Result:
    """Runs a command in a terminal that is wide enough for each table."""
    return CliRunner().invoke(app, list(arguments), terminal_width=240, env={"COLUMNS": "240"})


def answer(*arguments: str) -> Any:
    """The JSON of a command that succeeds."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    """Writes rows as JSON Lines; returns the path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)
