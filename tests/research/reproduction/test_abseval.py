"""The tables of ABSEval on CoScript's tasks, against figures that are calculated here."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.service.channel import open_channel
from dramaturg.testing import serve
from dramaturg.testing.generation import smallest_instance
from dramaturg_research.reproduction.abseval.printed import TABLE_5
from dramaturg_research.reproduction.abseval.rates import model_groups
from dramaturg_research.reproduction.abseval.runs import RECOVERED
from dramaturg_research.reproduction.abseval.tables import Scores, figure_6
from services.alignment.app import App as AlignmentApp
from tests.support.openai_server import Body
from tests.support.reproductions import (
    check_outputs,
    last_message,
    normalized,
    read_csv,
    reproduce,
    reproduce_with,
)
from tests.support.scripted_model import decide

pytestmark = [pytest.mark.data, pytest.mark.timeout(300)]

CRITERIA = {
    "NM": "no_missing_steps",
    "NR": "no_redundant_steps",
    "ND": "no_duplicate_steps",
    "EX": "executable",
    "SC": "satisfies_constraints",
    "CG": "completes_goal",
    "OC": "order_correct",
}
MODELS = ("tiny-7b", "big-70B-chat")
TOKEN = re.compile(r"token(\w{12})")
UNNUMBERED = re.compile(r"^\d+\.\s*")


def token(model: str, goal: str) -> str:
    """A word in the script of a model for a goal, by which judges decide."""
    return hashlib.sha256(f"{model}/{normalized(goal)}".encode()).hexdigest()[:12]


def passes(criterion: str, word: str, single: bool) -> bool:
    draw = hashlib.sha256(f"{criterion}/{word}/{single}".encode()).digest()[0]
    return draw >= (150 if criterion == "no_missing_steps" else 70)


class ScriptedModels:
    """Models under test that write a token, and judges that decide by it."""

    def __init__(self, released: dict[str, list[str]]) -> None:
        self._released = released
        self._goals = sorted(released, key=len, reverse=True)

    def __call__(self, body: Body) -> str | Body:
        form = body.get("response_format")
        if form is None:
            asked = normalized(last_message(body))
            goal = next(goal for goal in self._goals if normalized(goal) in asked)
            steps = [f"Begin with token{token(body['model'], goal)}.", "Go on.", "Finish."]
            if body["model"] == MODELS[1]:
                steps += [UNNUMBERED.sub("", step) for step in self._released[goal]]
            return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))
        schema = form["json_schema"]["schema"]["properties"]
        if "considerations" in schema:
            return json.dumps({"considerations": "None.", "steps": ["Begin.", "Go on.", "Finish."]})
        question = body["messages"][1]["content"]
        shown = re.search(r"\[BEGIN candidate\b.*?\[END candidate\b", question, re.DOTALL)
        assert shown is not None
        (word,) = set(TOKEN.findall(shown[0]))
        single = set(CRITERIA.values()) <= schema.keys()
        answer: dict[str, Any] = {}
        for name, shape in schema.items():
            if name in CRITERIA.values():
                passed = passes(name, word, single)
                answer[name] = decide(passed, shape["properties"], question, shown[0])
            else:
                answer[name] = smallest_instance(shape)
        return json.dumps(answer)


def rate(goals: list[str], model: str, criterion: str) -> float:
    return fmean(passes(CRITERIA[criterion], token(model, goal), False) for goal in goals)


@pytest.mark.slow
def test_own_tasks_are_evaluated_and_missing_gold_answers_are_counted(data_dir: Path, tmp_path: Path) -> None:
    goals = ["Brew tea on a train", "Brew tea in a tent"]
    topics = ["Food", "Travel"]
    with (tmp_path / "tasks.jsonl").open("w") as file:
        for place, (goal, topic) in enumerate(zip(goals, topics, strict=True)):
            file.write(json.dumps({"task": {"id": str(place), "goal": goal, "topic": topic}}) + "\n")
    models = ScriptedModels({goal: ["Heat water."] for goal in goals})

    def without_gold_answer(body: Body) -> str | Body:
        form = body.get("response_format")
        written = form and "considerations" in form["json_schema"]["schema"]["properties"]
        if written and goals[1] in body["messages"][1]["content"]:
            return "I'm sorry, but I can't help with that."
        return models(body)

    options = ["--model", MODELS[0], "--model", MODELS[1], "--tasks", str(tmp_path / "tasks.jsonl")]
    out = tmp_path / "out"
    finished, _ = reproduce_with(without_gold_answer, "abseval", data_dir, out, *options)
    # A half of the tasks was judged without the gold answer that it asked for.
    assert finished.code == 4, finished.err
    for name in ("table-5", "figure-5", "figure-12"):
        shown = (out / f"{name}.md").read_text()
        assert "1 of 2 samples were judged without the gold answer that they asked for" in shown, name
    index = (out / "README.md").read_text()
    assert "2 tasks of --tasks" in index
    table = {row["Model Name"]: row for row in read_csv(out / "table-5.csv")}
    assert float(table[MODELS[0]]["NM"]) == pytest.approx(rate(goals, MODELS[0], "NM"))
    # The tasks have no scripts, with which text metrics could compare.
    assert "rouge-1" not in read_csv(out / "figure-6.csv")[0]
    assert "Travel" in (out / "figure-2-run.svg").read_text()


async def test_rank_correlations_are_those_of_the_ranks() -> None:
    agents = {"a": [0.9] * 7, "b": [0.5] * 7, "c": [0.1] * 7}
    rates = {"agents": agents, "single-judge": {"a": [0.5] * 7, "b": [0.9] * 7, "c": [0.1] * 7}}
    two = {name: {model: found[model] for model in ("a", "b")} for name, found in rates.items()}
    none = Scores([], "", "there is no encoder")
    async with (
        AlignmentApp().open() as contracts,
        serve(*contracts) as server,
        open_channel(server.target) as channel,
    ):
        service = AlignmentServiceStub(channel)
        ranks, correlations = await figure_6(service, rates, none)
        _, undefined = await figure_6(service, two, none)
    assert [[cell.value for cell in row.cells[1:]] for row in ranks.rows] == [[1, 2], [2, 1], [3, 3]]
    (row,) = correlations.rows
    assert row.cells[0].text == "single-judge"
    # One of three pairs of models is in the other order.
    assert [cell.value for cell in row.cells[1:3]] == pytest.approx([1 / 3, 0.5])
    assert [cell.value for cell in undefined.rows[0].cells[1:3]] == [None, None]


@pytest.mark.slow
def test_without_an_encoder_bertscore_is_an_omission_with_its_reason(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAMATURG_ALIGNMENT_EMBEDDING_TARGET", "")
    row = json.loads((data_dir / "coscript" / "test_data.json").read_text().splitlines()[0])
    models = ScriptedModels({row["Specific Goal"].strip(): row["Script"]})
    options = [option for model in MODELS for option in ("--model", model)]
    finished, _ = reproduce_with(models, "abseval", data_dir, tmp_path / "out", *options, "--limit", "1")
    assert finished.code == 0, finished.err
    ranks = read_csv(tmp_path / "out" / "figure-6.csv")
    assert {"rouge-1", "chrf"} < ranks[0].keys()
    assert "bertscore" not in ranks[0]
    omission = "**Figure 6, BERTScore.** It was not computed: no EmbeddingService is configured"
    assert omission in (tmp_path / "out" / "README.md").read_text()


def test_the_printed_rates_pooled_by_size_are_those_of_figure_5(data_dir: Path) -> None:
    recovered = json.loads((data_dir / RECOVERED[1]).read_text())["fig5_heat_size_by_metric"]
    sizes = model_groups(list(TABLE_5))
    for place, size in enumerate(recovered["order"]):
        lines = [TABLE_5[model].split()[2:] for model, group in sizes.items() if group == size]
        for column, short in enumerate(CRITERIA):
            mean = fmean(float(line[column]) for line in lines)
            assert mean == pytest.approx(recovered[short][place], abs=0.0101), (size, short)


def test_without_a_model_ranks_and_errors_follow_from_the_printed_values(
    data_dir: Path, tmp_path: Path
) -> None:
    finished = reproduce("abseval", data_dir, tmp_path, "--offline")
    assert finished.code == 0, finished.err
    check_outputs(tmp_path, "abseval", offline=True)
    table = [row for row in read_csv(tmp_path / "table-5.csv") if row["Rank (paper)"]]
    assert len(table) == 15
    means = [fmean(float(row[short]) for short in CRITERIA) for row in table]
    for row, mean in zip(table, means, strict=True):
        assert float(row["Rank"]) == 1 + sum(other > mean for other in means)
    assert [(row["Model Name"], row["Size"]) for row in table[2:4]] == [
        ("Vicuna-v1.5 (paper)", "7B"),
        ("Vicuna-v1.5 (paper)", "13B"),
    ]
    everything = read_csv(tmp_path / "table-5.csv")[-1]
    for short in CRITERIA:
        assert float(everything[short]) == pytest.approx(fmean(float(row[short]) for row in table))
        assert float(everything[short]) == pytest.approx(float(everything[f"{short} (paper)"]), abs=3.1e-3)
    # Ranks 10 and 11 are the other way round in print.
    assert sorted(
        row["Rank (paper)"] for row in table if float(row["Rank"]) != float(row["Rank (paper)"])
    ) == [
        "10",
        "11",
    ]
    errors = read_csv(tmp_path / "table-2.csv")[0]
    assert "follow from no five to seven" in (tmp_path / "table-2.md").read_text()
    assert float(errors["From Figure 7: seven criteria"]) == pytest.approx(0.1036, abs=5e-5)
    assert float(errors["From Figure 7: six criteria"]) == pytest.approx(0.0908, abs=5e-5)
    assert errors["MSE"] == "0.087"
