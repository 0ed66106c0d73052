"""``dramaturg eval`` tells the kind of a file by its first row, and takes the options of that kind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dramaturg.cli.evaluate import infer_kind
from dramaturg.cli.main import app
from dramaturg.kinds import FILE_KINDS

TASK = {"goal": "Paint a wall"}
GRAPH = {
    "id": "g",
    "scenario": "paint a wall",
    "events": [{"id": "a", "text": "buy paint"}, {"id": "b", "text": "paint"}],
    "edges": [{"sourceId": "a", "targetId": "b"}],
}
ROWS: Mapping[str, Mapping[str, Any]] = {
    "scripts": {"task": TASK, "candidates": [{"id": "a", "text": "1. Buy paint.\n2. Paint."}]},
    "texts": {
        "task": TASK,
        "texts": [{"id": "a", "text": "I paint."}],
        "criteria": [{"id": "short", "description": "The text is short."}],
    },
    "pairs": {"source": "x", "first": {"text": "one"}, "second": {"text": "two"}},
    "decisions": {
        "decision": {"scenario": "Rain falls.", "option1": "stay", "option2": "go", "goal": "keep dry"},
        "models": ["m"],
    },
    "dialogues": {
        "script": {
            "task": {"id": "t", "name": "Shell", "description": "A shell."},
            "utterances": [{"speaker": "SPEAKER_USER", "text": "ls"}],
        }
    },
    "graphs": {"reference": GRAPH, "models": ["m"]},
}


def write(folder: Path, row: Mapping[str, Any], name: str = "rows.jsonl") -> str:
    file = folder / name
    file.write_text(json.dumps(row) + "\n", encoding="utf-8")
    return str(file)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["eval", *arguments], env={"COLUMNS": "200"})


@pytest.mark.parametrize("kind", FILE_KINDS)
def test_a_row_of_a_kind_is_of_that_kind(kind: str, tmp_path: Path) -> None:
    assert infer_kind(write(tmp_path, ROWS[kind]))[0] == kind


def test_texts_may_leave_the_rubric_to_the_command(tmp_path: Path) -> None:
    row = {name: value for name, value in ROWS["texts"].items() if name != "criteria"}
    assert infer_kind(write(tmp_path, row))[0] == "texts"


def test_a_table_with_a_text_a_row_is_one_of_texts(tmp_path: Path) -> None:
    (tmp_path / "answers.csv").write_text("task,model,text\nGreet,a,Hello\n", encoding="utf-8")
    assert infer_kind(str(tmp_path / "answers.csv"))[0] == "texts"


def test_a_table_of_no_usual_names_asks_for_the_column(tmp_path: Path) -> None:
    file = tmp_path / "survey.tsv"
    file.write_text("who\tcomment\nme\tGood.\n", encoding="utf-8")
    done = run(str(file))
    assert done.exit_code == 2
    assert "of no kind; name the column of texts with --text: who, comment" in done.stderr
    rubric = Path(__file__).resolve().parents[3] / "examples" / "texts" / "rubric.toml"
    rows = ("--rows", str(tmp_path / "rows.jsonl"))
    done = run(str(file), "--text", "comment", "--model-column=who", "--criteria", str(rubric), *rows)
    assert done.exit_code == 0, done.output
    first = "survey.tsv: a table with 1 text without tasks; columns: text=comment, model=who"
    assert first in done.stderr.splitlines()[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ("FILE", "--dry-run", "--limit", "1"),
        ("--limit", "1", "--json", "FILE", "--dry-run"),
        ("--dry-run", "--", "FILE"),
        ("--format=jsonl", "FILE", "--dry-run"),
        ("FILE", "--dry-run", "--format", "jsonl"),
    ],
)
def test_options_may_stand_anywhere(arguments: tuple[str, ...], tmp_path: Path) -> None:
    file = write(tmp_path, ROWS["scripts"], "rows.text" if "jsonl" in " ".join(arguments) else "rows.jsonl")
    done = run(*(file if one == "FILE" else one for one in arguments))
    assert done.exit_code == 0, done.output
    assert f"{file}: scripts, by the fields of its first row" in done.stderr


def test_standard_input_is_read_once_and_evaluated_whole(tmp_path: Path) -> None:
    lines = [json.dumps(ROWS["scripts"])] * 3
    command = [sys.executable, "-m", "dramaturg", "eval", "-", "--rows", str(tmp_path / "rows.jsonl")]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "-: scripts, by the fields of its first row" in done.stderr
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "there are no rows"),
        ("no JSON\n", "line 1: is not JSON"),
        ('{"colour": {"red": 1}}\n', "its first row is of no kind; name the kind with --kind"),
    ],
)
def test_a_file_of_no_kind_is_refused_with_the_reason(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(content)
    done = run(str(tmp_path / "rows.jsonl"))
    assert done.exit_code == 2
    assert message in done.stderr
    if "no kind" in message:
        assert all(f"\n  {kind}: " in done.stderr for kind in FILE_KINDS)


def test_a_mistake_within_a_row_leaves_its_kind(tmp_path: Path) -> None:
    row = {"decision": {"scenario": "Rain falls.", "optoin1": "stay"}}
    done = run(write(tmp_path, row))
    assert done.exit_code == 2
    assert "rows.jsonl: decisions, by the fields of its first row" in done.stderr
    assert "decision.optoin1: there is no such field" in done.stderr
    empty = run(write(tmp_path, {"task": TASK, "candidates": []}))
    assert "\n  scripts: line 1: candidates" in empty.stderr
    assert "decisions" not in empty.stderr


def test_a_file_that_is_missing_and_a_kind_that_is_unknown_are_wrong_usage(tmp_path: Path) -> None:
    assert "No such file" in run(str(tmp_path / "missing.jsonl")).stderr
    done = run("--kind", "poems", write(tmp_path, ROWS["scripts"]))
    assert done.exit_code == 2
    assert "--kind 'poems': is none of scripts" in done.stderr
    assert "Missing argument 'FILE'" in run("--limit", "1").stderr


def test_the_help_names_all_kinds_and_shows_rare_options_where_they_are_wanted() -> None:
    shown = run("--help").output
    assert all(f" {kind} " in shown for kind in FILE_KINDS)
    assert "--kind" in shown
    assert "--sweep" not in shown
    assert "--sweep" in run("--help-all").output


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"task,text\nq,caf\xe9\n", "is not UTF-8"),
        (b'task,text\nq,"open\n', "is not CSV: unexpected end of data"),
        (b"task,text\n", "there are no rows"),
        (b"task;text\nq;a\n", "columns are separated by commas"),
        (b"task,text,text\nq,a,b\n", "has the column text twice"),
        (b"task,model,text\nq,m\n", "row 1: text: is missing"),
    ],
)
def test_a_table_that_cannot_be_read_is_told_why(content: bytes, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "answers.csv"
    file.write_bytes(content)
    done = run(str(file), "--criteria", "builtin:tone", "--out", str(tmp_path / "out"))
    assert done.exit_code == 2
    assert problem in done.output
