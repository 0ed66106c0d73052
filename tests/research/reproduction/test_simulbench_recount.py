"""SimulBench's tables and figures, counted again from ratings and preferences that are known."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pytest

from tests.support.drawn import drawn_bars
from tests.support.openai_server import Body
from tests.support.readers import fenced, prompt_of
from tests.support.reproductions import Grid, read_csv, reproduce_with

pytestmark = pytest.mark.timeout(300)

MODELS = {"a": 0, "b": -1, "c": -2, "d": -5}
"""How much worse the replies of each model are."""
TASKS = {
    "Cipher": "stateless",
    "Rhyme": "stateless",
    "Colours": "stateless",
    "Units": "stateless",
    "Chess": "stateful",
    "Shell": "stateful",
    "Shop": "stateful",
    "Farm": "stateful",
}


class Script(NamedTuple):
    """A test script."""

    task: str
    utterances: tuple[str, ...]
    dialogue: str
    turn: int
    subset: str
    """"last", "first" or "later" (section 4.2.2)."""


def scripts() -> list[Script]:
    """Of each task a dialogue without a challenge, and one that is challenging from its second turn."""
    found = []
    for task in TASKS:
        for dialogue, turn, subset in (
            ("plain", 0, "last"),
            ("hard", 2, "first"),
            ("hard", 3, "later"),
            ("hard", 4, "later"),
        ):
            said = [f"Act as {task} ({dialogue}).", *(f"{task} {dialogue} {one}" for one in range(2 * turn))]
            found.append(Script(task, tuple(said), dialogue, turn, subset))
    return found


SCRIPTS = scripts()


def draw(*parts: str) -> int:
    return hashlib.sha256("\n".join(parts).encode()).digest()[0]


def rating(model: str, utterances: Sequence[str]) -> int:
    """Some scripts are perfect with every model; they stay in."""
    if draw("easy", *utterances) < 32:
        return 10
    return max(1, min(10, 4 + draw(model, *utterances) % 7 + MODELS[model]))


def preferred(first: str, second: str, utterances: Sequence[str]) -> str:
    """The better of two models; "" where the judge prefers the reply shown first, whichever it is."""
    if draw("biased", *sorted((first, second)), *utterances) < 64:
        return ""
    higher, lower = sorted((first, second), key=lambda model: -MODELS[model])
    return higher if draw("pair", higher, lower, *utterances) < 170 else lower


def respond(body: Body) -> str | Body:
    """Replies name their model and script, by which the judge decides."""
    form = body.get("response_format")
    if form is None:
        said = [message["content"] for message in body["messages"]]
        return f"reply {body['model']} {json.dumps(said)}"
    prompt = prompt_of(body)

    def of(label: str) -> tuple[str, list[str]]:
        _, model, said = fenced(prompt, label).split(" ", 2)
        return model, json.loads(said)

    if "rating" in form["json_schema"]["schema"]["properties"]:
        return {"reason": "Read.", "rating": rating(*of("last response"))}
    (first, said), (second, _) = of("text 1"), of("text 2")
    return {"reason": "Read.", "vote": "2" if preferred(first, second, said) == second else "1"}


def mean(model: str, some: Sequence[Script]) -> float:
    return fmean(rating(model, one.utterances) for one in some)


def by(table: Grid, column: str) -> dict[str, dict[str, str]]:
    return {row[column]: row for row in table}


FIRST = [one for one in SCRIPTS if one.subset == "first"]
HARD = [one for one in SCRIPTS if one.subset != "last"]
GROUPS = {
    "All": SCRIPTS,
    "Hard": HARD,
    "Script Type: Last Only": [one for one in SCRIPTS if one.subset == "last"],
    "Script Type: First Chan": FIRST,
    "Script Type: Subseq Chan": [one for one in SCRIPTS if one.subset == "later"],
    "Simulation Type: State-less": [one for one in FIRST if TASKS[one.task] == "stateless"],
    "Simulation Type: State-ful": [one for one in FIRST if TASKS[one.task] == "stateful"],
}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulbench")
    with (folder / "simulbench_all.jsonl").open("w") as rows:
        for number, one in enumerate(SCRIPTS):
            said = [
                {"role": ("user", "assistant")[place % 2], "content": text}
                for place, text in enumerate(one.utterances)
            ]
            row = {
                "id": number,
                "source_id": f"{list(TASKS).index(one.task):03}#{one.task}",
                "act": one.task,
                "task_description": f"Act as {one.task}.",
                "type": TASKS[one.task],
                "source_file_name": f"{one.dialogue}.json",
                "turn_num": one.turn,
                "dialogue_history": said,
            }
            rows.write(json.dumps(row) + "\n")
    options = [option for model in MODELS for option in ("--model", model)]
    finished, server = reproduce_with(respond, "simulbench", folder, folder / "out", *options)
    assert finished.code == 0, finished.err
    assert set(server.calls.values()) == {1}
    return folder / "out"


def test_table_4_and_its_figures(out: Path) -> None:
    table = by(read_csv(out / "table-4.csv"), "Models")
    for model in MODELS:
        for name, some in GROUPS.items():
            assert float(table[model][name]) == pytest.approx(mean(model, some)), (model, name)
            assert table[model][f"{name} (judged)"] == str(len(some))
    (counts,) = read_csv(out / "section-4-2.csv")
    assert all(int(counts[name]) == len(some) for name, some in GROUPS.items())
    for figure, names in (
        ("figure-2", ("All", "Hard")),
        ("figure-3a", ("Simulation Type: State-less", "Simulation Type: State-ful")),
        ("figure-3b", ("Script Type: Last Only", "Script Type: First Chan", "Script Type: Subseq Chan")),
    ):
        bars = drawn_bars(out / f"{figure}.svg")
        # Beside the models of the run stand the twelve of the paper.
        series = len(bars) // len(names)
        assert series == len(MODELS) + 12
        for place, name in enumerate(names):
            expected = [mean(model, GROUPS[name]) for model in MODELS]
            shown = bars[place * series : place * series + len(MODELS)]
            assert shown == pytest.approx(expected, abs=1e-4), (figure, name)


def test_table_1_compares_the_best_three_in_both_orders(out: Path) -> None:
    best = sorted(MODELS, key=lambda model: -mean(model, SCRIPTS))[:3]
    table = [row for row in read_csv(out / "table-1.csv") if "(paper)" not in row["Pair of Models"]]
    pairs = list(combinations(best, 2))
    assert [row["Pair of Models"] for row in table] == [f"{one} v.s. {other}" for one, other in pairs]
    for row, (one, other) in zip(table, pairs, strict=True):
        won = [preferred(one, other, script.utterances) for script in HARD]
        wins, ties, losses = (100 * won.count(name) / len(HARD) for name in (one, "", other))
        assert ties > 0
        shown = [float(row[name]) for name in ("Win", "Tie", "Lose", "Win - Lose")]
        assert shown == pytest.approx([wins, ties, losses, wins - losses]), row


def test_table_2_has_the_simplest_and_the_hardest_tasks(out: Path) -> None:
    for name, some in (("table-2", HARD), ("table-2-all", SCRIPTS)):
        values: defaultdict[str, list[int]] = defaultdict(list)
        for script in some:
            values[script.task] += [rating(model, script.utterances) for model in MODELS]
        simplest, hardest = read_csv(out / f"{name}.csv")
        for kind, head in (("stateless", "Stateless Tasks"), ("stateful", "Stateful Tasks")):
            means = {task: fmean(values[task]) for task in TASKS if TASKS[task] == kind}
            ordered = [f"{task} ({means[task]:.2f})" for task in sorted(means, key=lambda one: means[one])]
            assert hardest[f"{head}: this run"] == ", ".join(ordered[:2]), (name, kind)
            assert simplest[f"{head}: this run"] == ", ".join(ordered[::-1][:2]), (name, kind)
