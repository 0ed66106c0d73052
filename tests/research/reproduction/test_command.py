from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dramaturg.cli.main import app


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("choice75",), "name the models under test with --model"),
        (("choice75", "--model", "m", "--offline"), "name the models under test with --model"),
        (("choice75", "--offline"), "has neither verb_phrase_manual nor choice75/verb_phrase_manual"),
        (("another", "--offline"), "another"),
        (("choice75", "--model", "m", "--judge-model", "=x"), "--judge-model"),
        (("choice75", "--model", "m", "--perturbations"), "--perturbations: only abseval"),
        (("abseval", "--offline", "--perturbations"), "--perturbations: only abseval"),
        (("choice75", "--model", "m", "--ablations"), "--ablations: only abseval and drpe"),
        (("abseval", "--model", "m", "--single-order"), "--single-order: only drpe"),
        (("abseval", "--model", "m", "--pairwise"), "--pairwise: only proscript"),
        (("drpe", "--model", "m", "--prompts", "."), "--prompts: only choice75 and proscript"),
        (("proscript", "--offline", "--prompts", "."), "--prompts: only choice75 and proscript"),
        (("drpe", "--offline", "--predictions", __file__), "--predictions: only proscript"),
        (("abseval", "--offline", "--tasks", __file__), "--tasks: only abseval has it, with models"),
        (("choice75", "--model", "m", "--labels", __file__), "--labels: only abseval has it, with models"),
        (("abseval", "--model", "m", "--perturbations", "--tasks", __file__), "which --tasks replaces"),
    ],
)
def test_wrong_usage_and_data_are_named(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    paths = ("--data", str(tmp_path), "-o", str(tmp_path / "out"))
    result = CliRunner().invoke(app, ["research", "reproduce", *options, *paths], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert said in result.output
