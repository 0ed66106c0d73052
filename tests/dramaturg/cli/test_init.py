"""``dramaturg init``: what it writes is evaluated by the command that it prints."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dramaturg.cli.init import CONFIG, FILES, RUBRIC, TEXTS
from dramaturg.cli.main import app
from tests.support.command_line import dramaturg


async def test_the_printed_command_evaluates_what_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "my texts"
    written = await dramaturg("init", folder)
    assert written.code == 0, written.err
    following = written.err.strip()
    assert [Path(file).name for file in written.out.splitlines()] == [TEXTS, RUBRIC, CONFIG]
    name, *command = shlex.split(following.removeprefix("next: "))
    assert name == "dramaturg"
    done = await dramaturg(*command, "--out", tmp_path / "out", "--json")
    assert done.code == 0, done.err
    assert done.json["texts"]
    assert done.json["sample_count"] == 2
    # Without a model the rules decide.
    rates = {
        (one["criterion"], one["model"]): one["pass_rate"]["value"]
        for one in done.json["texts"]["verdicts"]
        if one["criterion"] == "says_when" and one["model"]
    }
    assert rates == {("says_when", "first"): 1.0, ("says_when", "second"): 0.0}
    assert done.err.splitlines()[-1] == f"next: dramaturg report {shlex.quote(str(tmp_path / 'out'))}"


def test_each_table_of_the_configuration_is_one_of_a_service() -> None:
    lines = [line.removeprefix("# ") for line in FILES[CONFIG].splitlines()]
    start = lines.index("[generation]")
    table = tomllib.loads("\n".join(lines[start : lines.index("", start + 5)]).replace("#\n", "\n"))
    assert table["generation"]["providers"]["main"]["api_key_env"] == "OPENAI_API_KEY"
    assert tomllib.loads(FILES[CONFIG]) == {}


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_there_are_kept(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine", encoding="utf-8")
    done = CliRunner().invoke(app, ["init", str(tmp_path)])
    assert done.exit_code == 2
    assert f"{name}: is there already" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text(encoding="utf-8") == "mine"
