"""``research roles``: what is refused before a model is asked, and what is stated of missing roles."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dramaturg.cli.main import app
from tests.support.command_line import dramaturg, read_jsonl
from tests.support.openai_server import OpenAIServer
from tests.support.reproductions import environment

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("name", "content", "options", "problem"),
    [
        ("a.txt", " \n", (), "a.txt: there is no text"),
        ("a.jsonl", "", (), "a.jsonl: there are no rows"),
        ("a.jsonl", '{"goal": "tea"}\n', (), 'line 1: has no string "source" or "text"'),
        ("a.txt", "A text.", ("--objective", "bad"), "--objective 'bad': the sets are"),
        ("a.txt", "A text.", ("--out", "absent/roles.jsonl"), "there is no folder"),
        ("a.txt", "A text.", ("--out", "."), "is a folder"),
    ],
)
def test_what_cannot_be_done_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    content: str,
    options: tuple[str, ...],
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(content, encoding="utf-8")
    result = CliRunner().invoke(app, ["research", "roles", name, "--target", NOWHERE, *options])
    assert (result.exit_code, problem in result.stderr) == (2, True), result.output


async def test_missing_roles_are_stated(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text('{"id": "t", "source": "A text."}\n', encoding="utf-8")
    role = {"type": "Driver", "description": "Drives by."}
    async with OpenAIServer(lambda _: {"coarse": [role], "fine": []}) as server:
        finished = await dramaturg(
            "research",
            "roles",
            tmp_path / "texts.jsonl",
            "--out",
            tmp_path / "roles.jsonl",
            environment=environment(server, tmp_path),
        )
    assert finished.code == 1, finished.err
    assert "1 of 5 roles were generated." in finished.out
    (row,) = read_jsonl(tmp_path / "roles.jsonl")
    assert row["failure"] == "1 of 5 roles were generated."
    # The missing ones were asked for once more.
    assert server.calls.total() == 2
