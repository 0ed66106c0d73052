from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dramaturg.cli.main import app

PAGE = Path(__file__).parents[3] / "docs" / "research" / "papers.md"
# The tables and the figures that each paper has.
PRINTED = {
    "ABSEval": (10, 12),
    "Choice-75": (4, 3),
    "DRPE": (1, 7),
    "proScript": (4, 9),
    "SimulBench": (4, 3),
}


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


def named(text: str) -> list[tuple[str, int]]:
    """The tables and figures of a cell, such as "Table 1, Figures 2 to 4 and 6"."""
    found = []
    for kind, numbers in re.findall(r"(Table|Figure)s? ((?:\d+(?:, | and | to )?)+)", text):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", numbers):
            found += [(kind, number) for number in range(int(first), int(last or first) + 1)]
    return found


def test_every_table_and_figure_has_its_state() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("\n## State\n")[2]
    rows = re.findall(r"^\| (\S+) \| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)[1:]
    rows = [row for row in rows if row[0] in PRINTED]
    assert all(re.match(r"works$|partly: \w|cannot, because \w", state) for *_, state in rows)
    for paper, (tables, figures) in PRINTED.items():
        stated = sorted(one for name, parts, _ in rows if name == paper for one in named(parts))
        everything = [("Figure", one + 1) for one in range(figures)] + [
            ("Table", one + 1) for one in range(tables)
        ]
        assert stated == everything, paper
