"""Counts Choice-75 again from the released files and the answers of a scripted model alone."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.openai_server import Answer, Body
from tests.support.recounts import check_share, draw, shown
from tests.support.reproductions import normalized, read_csv, reproduce_with

pytestmark = [pytest.mark.data, pytest.mark.timeout(540)]

MODELS = ("model-a", "model-b")
PROMPTS = ("naive", "story")
FOLDERS = {
    "Verb Phrase (Manual)": "verb_phrase_manual",
    "Verb Phrase (Machine)": "verb_phrase_machine",
    "User Profile": "user_profile",
}
LEVELS = {
    "All": {"easy", "medium", "hard", "na"},
    "Binary": {"easy", "medium", "hard"},
    "Easy": {"easy"},
    "Medium": {"medium"},
    "Hard": {"hard"},
    "Either": {"na"},
}
WORDINGS = {
    0: ("Either", "3) Either one, since they have similar effect when it comes to the goal"),
    1: ("Option 1", "Given that, Option 1 (this one) is better than Option 2."),
    2: ("**Option 2**", "2) Option 2"),
}
FAILURES = {"refusal", "empty", "cut off"}
SHARES = {"refusal": 50, "empty": 30, "cut off": 40, "unclear": 60}
"""How many of 1,000 decisions get such an answer in place of a choice."""


class Scenario(NamedTuple):
    """A row of the development part."""

    group: str
    goal: str
    options: tuple[str, str]
    text: str
    gold: int
    level: str


def development(data: Path) -> Iterator[Scenario]:
    """All rows of the part that Table 3 is over."""
    for group, folder in FOLDERS.items():
        for file in sorted((data / "choice75" / folder / "dev").glob("*.json")):
            script = json.loads(file.read_text())["branching_info"]
            options = (script["option 1"], script["option 2"])
            for text, gold, level in script["freeform_ra"]:
                yield Scenario(group, script["branching_step"], options, text, gold, level)


class Model:
    """Two models. What they answer to a decision follows from the model, the prompt and the decision."""

    def __init__(self, scenarios: Iterable[Scenario]) -> None:
        parts = ((tuple(map(normalized, (one.goal, *one.options, one.text))), one) for one in scenarios)
        self._known = sorted(parts, key=lambda known: -sum(map(len, known[0])))

    @staticmethod
    def answer(model: str, prompt: str, one: Scenario) -> int | str:
        """The choice, or what comes in its place."""
        place = draw(model, prompt, one.goal, one.options, one.text)
        for kind, share in SHARES.items():
            if place < share:
                return kind
            place -= share
        often = 250 if (model, one.level) in {("model-a", "hard"), ("model-b", "na")} else 550
        return one.gold if place < often else place % 3

    def __call__(self, body: Body) -> Answer:
        texts = shown(body)
        again = "[BEGIN decision" not in texts[-1]
        question = normalized(texts[-3] if again else texts[-1])
        prompt = "story" if "apersoncalleddoe" in question else "naive"
        one = next(row for parts, row in self._known if all(part in question for part in parts))
        model = body["model"]
        answer = self.answer(model, prompt, one)
        place = draw("form", model, prompt, one.goal, one.options, one.text)
        if isinstance(answer, int):
            if place < 100 and not again:
                return Answer("Both have their merits. I would have to think about that.")
            if place < 150 and not again:
                return Answer("Let me think about the scenario. The first", finish_reason="length")
            return Answer(WORDINGS[answer][place % 2])
        match answer:
            case "refusal" if place % 2:
                return Answer(refusal="I cannot help with that.")
            case "refusal":
                return Answer("I'm sorry, but I can't assist with that request.")
            case "empty":
                return Answer("")
            case "cut off":
                return Answer("Let me think about the scenario. The first", finish_reason="length")
        return Answer("Perhaps.")


@pytest.fixture(scope="module")
def reproduced(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reproduction with two scripted models."""
    out = tmp_path_factory.mktemp("choice75") / "out"
    options = [part for model in MODELS for part in ("--model", model)]
    finished, _ = reproduce_with(Model(development(data_dir)), "choice75", data_dir, out, *options)
    assert finished.code == 0, finished.err
    return out


def test_table_3_and_table_4_are_the_shares_of_right_choices(data_dir: Path, reproduced: Path) -> None:
    rows = list(development(data_dir))
    table = {(row["Group"], row["Prompt"]): row for row in read_csv(reproduced / "table-3.csv")}
    coverage = {
        (row["Group"], row["Prompt"], row["Model"]): row
        for row in read_csv(reproduced / "table-3-coverage.csv")
    }
    people = {row["Format"]: row for row in read_csv(reproduced / "table-4.csv")}
    means = defaultdict[str, float](float)
    for prompt, model, (column, levels) in product(PROMPTS, MODELS, LEVELS.items()):
        pooled = Counter[object]()
        for group in FOLDERS:
            answers = Counter[object]()
            for one in rows:
                if one.group == group and one.level in levels:
                    said = Model.answer(model, prompt, one)
                    answers[said if isinstance(said, str) else said == one.gold] += 1
            n, abstained = sum(answers.values()), answers["unclear"]
            check_share(table[group, prompt], f"{column}: {model}", answers[True], n - abstained, n)
            means[f"{column}: {model}"] += answers[True] / (n - abstained)
            told = [
                coverage[group, prompt, model][f"{column}: {part}"] for part in ("n", "failed", "abstained")
            ]
            assert [int(one) for one in told] == [n, sum(answers[one] for one in FAILURES), abstained]
            if column in {"Easy", "Medium", "Hard", "Either"}:
                check_share(people[group], f"{column}: {model}, {prompt}", answers[True], n - abstained, n)
            pooled.update(answers)
        if column == "All":
            assert all(pooled[kind] for kind in SHARES)
        if column in {"Easy", "Medium", "Hard", "Either"}:
            n = sum(pooled.values()) - pooled["unclear"]
            check_share(people["All"], f"{column}: {model}, {prompt}", pooled[True], n, sum(pooled.values()))
    for column, total in means.items():
        assert float(table["Average", ""][column]) == pytest.approx(total / 6)
