"""Counts SimulBench again from the test scripts and the answers of a scripted model alone."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.drawn import drawn_bars
from tests.support.openai_server import Answer, Body
from tests.support.recounts import check_mean, draw, shown
from tests.support.reproductions import check_outputs, read_csv, reproduce, reproduce_with

pytestmark = pytest.mark.timeout(300)

MODELS = {"model-a": 2, "model-b": 0, "model-c": 1, "model-d": -2}
"""How much better than the others each model is rated."""
STATELESS = [f"Tool {one}" for one in "ABCDEFGHIJKLMNOPQRSTU"]
STATEFUL = [*(f"World {one}" for one in "ABCDEFGH"), "world a"]
"""Tasks, of which two have one name but for its case: they are two, as in the data."""
_REPLY = re.compile(r"Reply to script (\d+) by (model-.)\.")


class Script(NamedTuple):
    """A test script."""

    id: int
    task: str
    stateful: bool
    part: str
    """LastOnly, FirstChan or SubseqChan."""
    dialogue: str
    turn: int
    """The first challenging turn of the dialogue or a later one; 0 without any."""
    texts: tuple[str, ...]


def scripts() -> list[Script]:
    """Of each task a dialogue without a challenge, and one that is challenging from a later turn."""
    made: list[Script] = []
    for number, name in enumerate((*STATELESS, *STATEFUL)):
        parts = [("plain", 0, 3, "LastOnly")]
        parts += [("hard", turn, turn - 1, "SubseqChan") for turn in range(2 + number % 2, 5)]
        parts[1] = (*parts[1][:3], "FirstChan")
        for dialogue, turn, before, part in parts:
            texts = [
                f"I want you to act as {name} ({dialogue}).",
                *(f"{name}: {one}" for one in range(2 * before)),
            ]
            made.append(Script(len(made), name, name in STATEFUL, part, dialogue, turn, tuple(texts)))
    return made


def write(made: Iterable[Script], file: Path) -> None:
    """Writes scripts in the released form, which does not name the parts."""
    tasks = (*STATELESS, *STATEFUL)
    with file.open("w") as opened:
        for one in made:
            history = [
                {"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(one.texts)
            ]
            row = {
                "id": one.id,
                "source_id": f"{tasks.index(one.task):03}#{one.task.replace(' ', '_')}",
                "act": one.task,
                "task_description": one.texts[0],
                "type": "stateful" if one.stateful else "stateless",
                "source_file_name": f"{one.dialogue}.json",
                "turn_num": one.turn,
                "dialogue_history": history,
            }
            opened.write(json.dumps(row) + "\n")


class Models:
    """Four models and their judge. All that they say follows from the script and the model."""

    def __init__(self, scripts: Iterable[Script]) -> None:
        self._by_text = {one.texts: one for one in scripts}
        self.usable = Counter[tuple[object, ...]]()
        """The requests with an answer of use."""

    @staticmethod
    def refuses(script: int, model: str) -> bool:
        """Whether the model refuses."""
        return draw("refuses", script, model) < 60

    @classmethod
    def rating(cls, script: int, model: str) -> int | None:
        """The rating of a reply; None where the judge's answers cannot be read."""
        if cls.refuses(script, model):
            return 1
        if draw("unreadable", script, model) < 40:
            return None
        return max(1, min(10, 4 + draw("rating", script, model) % 5 + MODELS[model]))

    @staticmethod
    def votes(script: int, first: str, second: str) -> tuple[str, str]:
        """What the judge says of two replies: with the first of them shown first, and shown second."""
        place = draw("pair", script, *sorted((first, second)))
        swapped = first > second
        if place < 300:
            return ("2", "1") if swapped else ("1", "2")
        if place < 500:
            return ("1", "2") if swapped else ("2", "1")
        if place < 700:
            return "1", "1"
        if place < 850:
            return "tie", "tie"
        if place < 930:
            return ("tie", "1") if swapped else ("1", "tie")
        return "?", "?"

    @classmethod
    def outcome(cls, script: int, first: str, second: str) -> str:
        """The outcome for the first of two models by the rule of section 2.5."""
        refusals = cls.refuses(script, first), cls.refuses(script, second)
        if any(refusals):
            return "tie" if all(refusals) else "lose" if refusals[0] else "win"
        said = cls.votes(script, first, second)
        if "?" in said:
            return "missing"
        return {("1", "2"): "win", ("2", "1"): "lose"}.get(said, "tie")

    def __call__(self, body: Body) -> Answer:
        answer = self._answer(body)
        if body["model"] == "judge":
            self.usable[tuple(shown(body))] += answer.text.startswith("{")
        return answer

    def _answer(self, body: Body) -> Answer:
        texts = shown(body)
        if body["model"] != "judge":
            script, model = self._by_text[tuple(texts)].id, body["model"]
            if self.refuses(script, model):
                return Answer(refusal="I cannot help with that.")
            cut = draw("cut", script, model) < 50
            self.usable[script, model] += not cut
            return Answer(f"Reply to script {script} by {model}.", finish_reason="length" if cut else "stop")
        replies = [(int(script), model) for script, model in _REPLY.findall(texts[1])]
        if body["response_format"]["json_schema"]["name"] == "rating":
            ((script, model),) = replies
            rating = self.rating(script, model)
            return Answer(
                "I would rather not." if rating is None else _json(reason="So it is.", rating=rating)
            )
        (script, first), (_, second) = replies
        vote = (
            self.votes(script, first, second)[0] if first < second else self.votes(script, second, first)[1]
        )
        return Answer("Neither, or both." if vote == "?" else _json(reason="So it is.", vote=vote))


def _json(**members: Any) -> str:
    return json.dumps(members)


class Reproduced:
    """The folder of a reproduction, and the scripts."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "out"
        self.scripts = scripts()
        write(self.scripts, folder / "simulbench_all.jsonl")
        options = [part for model in MODELS for part in ("--model", model)]
        models = Models(self.scripts)
        finished, _ = reproduce_with(
            models, "simulbench", folder, self.out, *options, "--judge-model", "judge"
        )
        assert finished.code == 0, finished.err
        check_outputs(self.out, "simulbench")
        # The second run has the replies of the first one. No answer of use is bought twice.
        assert max(models.usable.values()) == 1


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Reproduced:
    """A reproduction with scripted models."""
    return Reproduced(tmp_path_factory.mktemp("simulbench"))


GROUPS: dict[str, Callable[[Script], bool]] = {
    "Script Type: Last Only": lambda one: one.part == "LastOnly",
    "Script Type: First Chan": lambda one: one.part == "FirstChan",
    "Script Type: Subseq Chan": lambda one: one.part == "SubseqChan",
    "Simulation Type: State-less": lambda one: one.part == "FirstChan" and not one.stateful,
    "Simulation Type: State-ful": lambda one: one.part == "FirstChan" and one.stateful,
    "Hard": lambda one: one.part != "LastOnly",
    "All": lambda one: True,
}


def test_table_4_and_its_figures_have_the_means_of_the_ratings(reproduced: Reproduced) -> None:
    table = {row["Models"]: row for row in read_csv(reproduced.out / "table-4.csv")}
    (kinds,) = read_csv(reproduced.out / "section-4-2.csv")
    means = defaultdict[str, list[float]](list)
    for column, chosen in GROUPS.items():
        some = [one.id for one in reproduced.scripts if chosen(one)]
        assert int(kinds[column]) == len(some)
        for model in MODELS:
            ratings = [Models.rating(script, model) for script in some]
            known = [one for one in ratings if one is not None]
            means[column].append(statistics.fmean(known))
            assert column != "All" or len(known) < len(ratings)
            check_mean(table[model], column, known, (1, 10), of=len(ratings))
    assert table["GPT-4o (paper)"]["All"] == "8.59"
    for figure, columns in (
        ("figure-2", ("All", "Hard")),
        ("figure-3a", ("Simulation Type: State-less", "Simulation Type: State-ful")),
        ("figure-3b", ("Script Type: Last Only", "Script Type: First Chan", "Script Type: Subseq Chan")),
    ):
        bars = drawn_bars(reproduced.out / f"{figure}.svg")
        series = len(bars) // len(columns)
        # Beside the models of the run stand those of the paper.
        assert series == len(MODELS) + 12
        for place, column in enumerate(columns):
            assert bars[place * series :][: len(MODELS)] == pytest.approx(means[column], abs=1e-4)


def test_table_1_has_the_shares_of_the_pairs_of_the_three_best(reproduced: Reproduced) -> None:
    means = {}
    for model in MODELS:
        ratings = [Models.rating(one.id, model) for one in reproduced.scripts]
        means[model] = statistics.fmean(one for one in ratings if one is not None)
    best = sorted(means, key=lambda model: -means[model])[:3]
    table = {row["Pair of Models"]: row for row in read_csv(reproduced.out / "table-1.csv")}
    for first, second in combinations(best, 2):
        counts = Counter(
            Models.outcome(one.id, first, second) for one in reproduced.scripts if one.part != "LastOnly"
        )
        judged = sum(counts.values()) - counts["missing"]
        assert counts["missing"]
        row = table[f"{first} v.s. {second}"]
        said = list(counts.elements())
        for column, points in (
            ("Win", {"win": 1}),
            ("Tie", {"tie": 1}),
            ("Lose", {"lose": 1}),
            ("Win - Lose", {"win": 1, "lose": -1}),
        ):
            values = [points.get(one, 0) for one in said if one != "missing"]
            scale = (min(0, *points.values()), 1)
            check_mean(row, column, values, scale, of=len(said), unit=100)
        assert row["n"] == str(judged)
    assert table["GPT-4o v.s. Llama-3-70B-Chat (paper)"]["Win - Lose"] == "4.0"


@pytest.mark.parametrize(("name", "hard"), [("table-2", True), ("table-2-all", False)])
def test_table_2_has_the_tasks_of_the_highest_and_the_lowest_mean(
    reproduced: Reproduced, name: str, hard: bool
) -> None:
    table = {row["Tasks"]: row for row in read_csv(reproduced.out / f"{name}.csv")}
    for column, stateful in (("Stateless Tasks", False), ("Stateful Tasks", True)):
        ratings, asked = defaultdict[str, list[int]](list), Counter[str]()
        for one in reproduced.scripts:
            if one.stateful == stateful and (one.part != "LastOnly" or not hard):
                for model in MODELS:
                    rating = Models.rating(one.id, model)
                    ratings[one.task] += [] if rating is None else [rating]
                    asked[one.task] += 1
        means = {task: statistics.fmean(values) for task, values in ratings.items()}
        for row, sign in (("Simplest", -1), ("Hardest", 1)):
            told = re.findall(r"(?:^|, )(.+?) \((\d+\.\d\d)\)", table[row][f"{column}: this run"])
            expected = sorted(means.values(), key=lambda mean: sign * mean)[: min(10, len(means) // 2)]
            assert [float(mean) for _, mean in told] == pytest.approx(expected, abs=0.0051)
            assert all(means[task] == pytest.approx(float(mean), abs=0.0051) for task, mean in told)
        kind = "stateful" if stateful else "stateless"
        rated = read_csv(reproduced.out / f"{name}-ratings.csv")
        by_task = {one["Task"]: one for one in rated if one["Simulation type"] == kind}
        assert set(by_task) == set(means)
        for task, one_row in by_task.items():
            check_mean(one_row, "Mean rating", ratings[task], (1, 10), of=asked[task])
    assert table["Simplest"]["Stateless Tasks: paper"].startswith("Educational Content Creator")


@pytest.mark.parametrize("part", ["LastOnly", "FirstChan"])
def test_data_of_one_part_alone_has_the_figures_of_that_part(tmp_path: Path, part: str) -> None:
    write((one for one in scripts() if one.part == part), tmp_path / "simulbench_all.jsonl")
    finished = reproduce("simulbench", tmp_path, tmp_path / "out", "--offline")
    assert finished.code == 0, finished.err
    (counts,) = read_csv(tmp_path / "out" / "section-4-2.csv")
    assert [counts["All"], counts["Hard"]] == (["30", "0"] if part == "LastOnly" else ["30", "30"])
