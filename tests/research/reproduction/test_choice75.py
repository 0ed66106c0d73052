"""The tables of Choice-75 from the released data, against figures that are calculated here."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.examples import EXAMPLES
from tests.support.openai_server import Body
from tests.support.reproductions import (
    Grid,
    check_outputs,
    last_message,
    normalized,
    read_csv,
    reproduce,
    reproduce_with,
)

FORMATS = {
    "Verb Phrase (Manual)": "verb_phrase_manual",
    "Verb Phrase (Machine)": "verb_phrase_machine",
    "User Profile": "user_profile",
}
pytestmark = [pytest.mark.data, pytest.mark.timeout(300)]

LEVELS = ("easy", "medium", "hard", "either")
ANSWERS = ("Either", "Option 1", "Option 2")


class Scenario(NamedTuple):
    """A released scenario, read without the product."""

    form: str
    split: str
    option: str
    text: str
    gold: int
    level: str


def released(folder: Path) -> Iterator[Scenario]:
    for form in FORMATS.values():
        for split in ("train", "dev"):
            files = sorted((folder / form / split).glob("*.json"), key=lambda one: int(one.stem))
            for file in files:
                branching = json.loads(file.read_text())["branching_info"]
                for text, gold, level in branching["freeform_ra"]:
                    level = "either" if level == "na" else level
                    yield Scenario(form, split, normalized(branching["option 1"]), text, gold, level)


def answer(model: str, prompt: str, scenario: Scenario) -> int:
    """The answer of a scripted model: 0 either, 1 or 2; mostly right."""
    digest = hashlib.sha256(f"{model}/{prompt}/{scenario.option}/{normalized(scenario.text)}".encode())
    draw = digest.digest()[0]
    return scenario.gold if draw % (3 if model == "a" else 5) else draw % 7 % 3


class ScriptedModel:
    """Finds the scenario of a question among the released ones and answers it."""

    def __init__(self, scenarios: list[Scenario]) -> None:
        self._by_option: defaultdict[str, list[Scenario]] = defaultdict(list)
        for one in scenarios:
            self._by_option[one.option].append(one)

    def __call__(self, body: Body) -> str:
        question = last_message(body)
        prompt = "naive" if "Scenario" in question.split("Question")[0] else "story"
        text = normalized(question)
        found = [
            one
            for option, some in self._by_option.items()
            if option in text
            for one in some
            if normalized(one.text) in text
        ]
        scenario = max(found, key=lambda one: (len(normalized(one.text)), len(one.option)))
        return ANSWERS[answer(str(body["model"]), prompt, scenario)]


def accuracy(scenarios: list[Scenario], model: str, prompt: str, form: str, level: str) -> float | None:
    levels = {"All": LEVELS, "Binary": LEVELS[:3]}.get(level, (level.lower(),))
    mine = [one for one in scenarios if one.form == form and one.level in levels]
    right = sum(answer(model, prompt, one) == one.gold for one in mine)
    return right / len(mine) if mine else None


def assert_table_3(table: Grid, scenarios: list[Scenario]) -> None:
    sums: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for row in table[:-1]:
        for level in ("All", "Binary", "Easy", "Medium", "Hard", "Either"):
            for model in ("a", "b"):
                expected = accuracy(scenarios, model, row["Prompt"], FORMATS[row["Group"]], level)
                shown = row[f"{level}: {model}"]
                if expected is None:
                    assert shown == ""
                else:
                    assert float(shown) == pytest.approx(expected, abs=1e-12), (row["Group"], level, model)
                    sums[level, model].append(expected)
    for (level, model), values in sums.items():
        if len(values) == len(table) - 1:
            expected = sum(values) / len(values)
            assert float(table[-1][f"{level}: {model}"]) == pytest.approx(expected, abs=1e-12)


def test_a_limit_draws_scenarios_evenly(data_dir: Path, tmp_path: Path) -> None:
    scenarios, limit = list(released(data_dir / "choice75")), 60
    dev = [one for one in scenarios if one.split == "dev"]
    kept = [dev[index * len(dev) // limit] for index in range(limit)]
    options = ("--model", "a", "--model", "b", "--limit", str(limit))
    finished, server = reproduce_with(
        ScriptedModel(scenarios), "choice75", data_dir, tmp_path / "out", *options
    )
    assert finished.code == 0, finished.err
    check_outputs(tmp_path / "out", "choice75")
    table = read_csv(tmp_path / "out" / "table-3.csv")
    assert [(row["Group"], row["Prompt"]) for row in table] == [
        *((group, prompt) for group in FORMATS for prompt in ("naive", "story")),
        ("Average", ""),
    ]
    assert_table_3(table, kept)
    # The printed numbers stand beside.
    assert table[0]["Easy: Turbo (paper)"] == "0.92"
    assert table[-1]["Hard: 003 (paper)"] == "0.59"
    # One call a scenario, model and prompt; equal scenarios share one.
    assert set(server.calls.values()) == {1}
    assert len(kept) * 4 - 8 <= sum(server.calls.values()) <= len(kept) * 4


def test_refusals_in_prose_are_wrong_and_wording_cap_and_demonstrations_are_chosen(
    data_dir: Path, tmp_path: Path
) -> None:
    scenarios = list(released(data_dir / "choice75"))
    model = ScriptedModel(scenarios)
    decision = {"goal": "eat", "option1": "cook", "option2": "order", "scenario": "has no stove"}
    shown = tmp_path / "shown.jsonl"
    shown.write_text(json.dumps({"decision": decision, "choice": "CHOICE_OPTION_2"}) + "\n")
    bodies: list[Body] = []

    def respond(body: Body) -> str:
        bodies.append(body)
        right = model(body)
        return right if right == "Option 1" else "I'm sorry, but I can't assist with that."

    options = ("--model", "a", "--limit", "40", "--max-output-tokens", "30", "--demonstrations", str(shown))
    wording = ("--prompts", str(EXAMPLES / "prompts" / "choice75" / "generation"))
    finished, _ = reproduce_with(respond, "choice75", data_dir, tmp_path / "out", *options, *wording)
    assert finished.code == 0, finished.err
    assert all(body["max_tokens"] == 30 and len(body["messages"]) == 4 for body in bodies)
    assert all("[Answer]:" in last_message(body) for body in bodies)
    dev = [one for one in scenarios if one.split == "dev"]
    kept = [dev[index * len(dev) // 40] for index in range(40)]
    table = read_csv(tmp_path / "out" / "table-3.csv")
    coverage = read_csv(tmp_path / "out" / "table-3-coverage.csv")
    for row, counts in zip(table[:-1], coverage, strict=True):
        prompt = row["Prompt"]
        mine = [one for one in kept if one.form == FORMATS[row["Group"]]]
        answers = [answer("a", prompt, one) for one in mine]
        right = sum(given == one.gold == 1 for given, one in zip(answers, mine, strict=True))
        assert float(row["All: a"]) == pytest.approx(right / len(mine))
        assert (counts["Group"], counts["Prompt"], counts["Model"]) == (row["Group"], prompt, "a")
        assert int(counts["All: n"]) == len(mine)
        assert int(counts["All: failed"]) == sum(given != 1 for given in answers)
        assert counts["All: abstained"] == "0"


def test_without_a_model_counts_and_constant_answers_are_those_of_the_labels(
    data_dir: Path, tmp_path: Path
) -> None:
    finished = reproduce("choice75", data_dir / "choice75", tmp_path, "--offline")
    assert finished.code == 0, finished.err
    check_outputs(tmp_path, "choice75", offline=True)
    scenarios = list(released(data_dir / "choice75"))
    counts = read_csv(tmp_path / "table-1.csv")
    assert [[row[level] for level in ("Easy", "Medium", "Hard", "Either")] for row in counts] == [
        ["65", "76", "36", "65"],
        ["46", "41", "22", "50"],
        ["53", "76", "17", "73"],
        ["164", "193", "75", "188"],
    ]
    assert all(row[level] == row[f"{level} (paper)"] for row in counts for level in ("Easy", "Hard"))
    table = read_csv(tmp_path / "table-3.csv")
    for row in table[:-1]:
        mine = [one for one in scenarios if (one.split, one.form) == ("dev", FORMATS[row["Group"]])]
        for name, gold in (("always option 1", 1), ("always either", 0)):
            expected = sum(one.gold == gold for one in mine) / len(mine)
            assert float(row[f"All: {name}"]) == pytest.approx(expected, abs=1e-12)
    people = read_csv(tmp_path / "table-4.csv")
    assert [row["Hard: people (paper)"] for row in people] == ["0.82", "0.68", "0.75", "0.76"]
    index = (tmp_path / "README.md").read_text()
    assert "Fleiss' kappa" in index
    assert "Not reproduced" in index


def test_a_dry_run_prints_the_planned_calls_and_buys_and_writes_nothing(
    data_dir: Path, tmp_path: Path
) -> None:
    options = ("--model", "a", "--model", "b", "--limit", "20", "--dry-run")
    finished, server = reproduce_with(lambda _: "", "choice75", data_dir, tmp_path / "out", *options)
    assert finished.code == 0, finished.err
    # 20 scenarios, 2 models, 2 prompts.
    assert re.search(r"model calls +80\b", finished.out)
    assert not server.calls
    assert not list((tmp_path / "out").glob("*.*"))
