"""The tables of SimulBench from the released data, against figures that are calculated here."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from dramaturg.api.judging.v1.text_scorer_service_pb2 import ScoreTextsRequest, ScoreTextsResponse, TextScore
from dramaturg.testing import serve
from tests.support.command_line import dramaturg
from tests.support.evaluations import contract
from tests.support.openai_server import Body, OpenAIServer
from tests.support.readers import fenced, prompt_of
from tests.support.reproductions import check_outputs, environment, read_csv, reproduce, reproduce_with

pytestmark = [pytest.mark.data, pytest.mark.timeout(540)]

MODELS = ("a", "b", "judge")
SUBSETS = {"Last Only": "lastonly", "First Chan": "firstchan", "Subseq Chan": "subseqchan"}


def reply_of(model: str, utterances: Sequence[str]) -> str:
    digest = hashlib.sha256("\n".join((model, *utterances)).encode()).hexdigest()
    return f"reply {model} {digest}"


def rating_of(reply: str) -> int:
    """A known rating; the model "a" is better than "b"."""
    draw = int(reply[-6:], 16)
    return 1 + draw % {"a": 10, "b": 8, "judge": 6}[reply.split()[1]]


def scripted(body: Body) -> str | Body:
    form = body.get("response_format")
    if form is None:
        return reply_of(body["model"], [message["content"] for message in body["messages"]])
    prompt = prompt_of(body)
    if "rating" in form["json_schema"]["schema"]["properties"]:
        return {"reason": "Read.", "rating": rating_of(fenced(prompt, "last response"))}
    first, second = (rating_of(fenced(prompt, f"text {place}")) for place in (1, 2))
    # Of equal replies the one shown first is preferred: the orders disagree, which is a tie.
    return {"reason": "Read.", "vote": "1" if first >= second else "2"}


def released(folder: Path, limit: int | None) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "simulbench_all.jsonl").read_text().splitlines()]
    kinds = json.loads((folder / "derived_subset_labels.json").read_text())
    for row in rows:
        row["subset"] = kinds[str(row["id"])]
        row["utterances"] = [one["content"] for one in row["dialogue_history"]]
    return rows if limit is None else [rows[index * len(rows) // limit] for index in range(limit)]


def ratings_of(rows: Sequence[dict[str, Any]], model: str) -> list[int]:
    return [rating_of(reply_of(model, row["utterances"])) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [60, None])
def test_ratings_and_comparisons_are_those_of_the_scripted_answers(
    data_dir: Path, tmp_path: Path, limit: int | None
) -> None:
    rows = released(data_dir / "simulbench", limit)
    options = [option for model in MODELS for option in ("--model", model)]
    if limit is not None:
        options += ["--limit", str(limit)]
    finished, server = reproduce_with(scripted, "simulbench", data_dir, tmp_path / "out", *options)
    assert finished.code == 0, finished.err
    check_outputs(tmp_path / "out", "simulbench")
    subset = {name: [row for row in rows if row["subset"] == key] for name, key in SUBSETS.items()}
    hard = subset["First Chan"] + subset["Subseq Chan"]
    groups = {
        "All": rows,
        "Hard": hard,
        **{f"Script Type: {name}": some for name, some in subset.items()},
        "Simulation Type: State-less": [row for row in subset["First Chan"] if row["type"] == "stateless"],
        "Simulation Type: State-ful": [row for row in subset["First Chan"] if row["type"] == "stateful"],
    }
    table = {row["Models"]: row for row in read_csv(tmp_path / "out" / "table-4.csv")}
    for model in MODELS:
        for name, some in groups.items():
            assert float(table[model][name]) == pytest.approx(fmean(ratings_of(some, model)), abs=1e-9)
    assert table["GPT-4o (paper)"]["All"] == "8.59"
    assert_pairs(tmp_path / "out" / "table-1.csv", hard)
    assert_tasks(tmp_path / "out" / "table-2.csv", hard)
    assert_tasks(tmp_path / "out" / "table-2-all.csv", rows)
    # One reply and one rating for each script and model; each pair in both orders; nothing twice.
    assert set(server.calls.values()) == {1}
    assert sum(server.calls.values()) <= len(rows) * 3 * 2 + len(hard) * 3 * 2
    assert {"figure-2.svg", "figure-3a.png", "figure-3b.svg"} <= {
        file.name for file in (tmp_path / "out").iterdir()
    }


def assert_pairs(file: Path, hard: Sequence[dict[str, Any]]) -> None:
    means = {model: fmean(ratings_of(hard, model)) for model in MODELS}
    table = {row["Pair of Models"]: row for row in read_csv(file)}
    assert means["a"] > means["b"] > means["judge"]
    for first, second in (("a", "b"), ("a", "judge"), ("b", "judge")):
        pairs = list(zip(ratings_of(hard, first), ratings_of(hard, second), strict=True))
        wins = sum(left > right for left, right in pairs)
        losses = sum(left < right for left, right in pairs)
        row = table[f"{first} v.s. {second}"]
        assert float(row["Win"]) == pytest.approx(100 * wins / len(hard))
        assert float(row["Tie"]) == pytest.approx(100 * (len(hard) - wins - losses) / len(hard))
        assert float(row["Win - Lose"]) == pytest.approx(100 * (wins - losses) / len(hard))
    assert table["GPT-4o v.s. Llama-3-70B-Chat (paper)"]["Win - Lose"] == "4.0"


def assert_tasks(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    values: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for row in rows:
        for model in MODELS:
            values[row["type"], row["act"].strip()] += ratings_of([row], model)
    simplest, hardest = read_csv(file)
    for kind, head in (("stateless", "Stateless Tasks"), ("stateful", "Stateful Tasks")):
        means = sorted((fmean(some), name) for (one, name), some in values.items() if one == kind)
        shown = [f"{name} ({mean:.2f})" for mean, name in means]
        listed = min(10, len(means) // 2)
        assert hardest[f"{head}: this run"] == ", ".join(shown[:listed])
        assert simplest[f"{head}: this run"] == ", ".join(shown[::-1][:listed])
    assert simplest["Stateless Tasks: paper"].startswith("Educational Content Creator")


def test_without_a_model_the_printed_means_aggregate_to_the_printed_ones(
    data_dir: Path, tmp_path: Path
) -> None:
    finished = reproduce("simulbench", data_dir, tmp_path, "--offline")
    assert finished.code == 0, finished.err
    check_outputs(tmp_path, "simulbench", offline=True)
    printed = {row["Models"].removesuffix(" (paper)"): row for row in read_csv(tmp_path / "table-4.csv")}
    table = read_csv(tmp_path / "table-4-aggregation.csv")
    assert len(table) == 12
    for row in table:
        parts = printed[row["Models"]]
        last, later = float(parts["Script Type: Last Only"]), float(parts["Script Type: Subseq Chan"])
        first = (38 * float(parts["Simulation Type: State-less"])) + 55 * float(
            parts["Simulation Type: State-ful"]
        )
        assert float(row["First Chan"]) == pytest.approx(first / 93, abs=1e-9)
        assert float(row["Hard"]) == pytest.approx((first + 182 * later) / 275, abs=1e-9)
        assert float(row["All"]) == pytest.approx((first + 182 * later + 225 * last) / 500, abs=1e-9)
        for column in ("Hard", "All"):
            assert float(row[column]) == pytest.approx(float(row[f"{column} (paper)"]), abs=0.0125)
    (counts,) = read_csv(tmp_path / "section-4-2.csv")
    assert all(
        value == counts[f"{name} (paper)"] for name, value in counts.items() if f"{name} (paper)" in counts
    )


def toxicity(text: str) -> float:
    return len(text) % 11 / 10


@pytest.mark.slow
async def test_registered_scorers_score_the_texts_of_tasks_and_scripts(
    data_dir: Path, tmp_path: Path
) -> None:
    async def score(request: ScoreTextsRequest) -> ScoreTextsResponse:
        scores = [TextScore(value=toxicity(text)) for text in request.texts]
        return ScoreTextsResponse(attribute="toxicity", scores=scores)

    folder, limit = data_dir / "simulbench", 40
    tasks = [json.loads(line) for line in (folder / "simulbench_tasks.jsonl").read_text().splitlines()]
    texts = [("Simulation Task", task["task_description"]) for task in tasks]
    texts += [("Testing Script", "\n\n".join(row["utterances"])) for row in released(folder, None)]
    kept = [texts[index * len(texts) // limit] for index in range(limit)]
    configuration, out = tmp_path / "dramaturg.toml", tmp_path / "out"
    async with (
        serve(contract("text-scorer", {"ScoreTexts": score})) as scorer,
        OpenAIServer(scripted, models=("a", "judge")) as model,
    ):
        configuration.write_text(
            f'[[gateway.judges]]\nrole = "text-scorer"\nname = "fake"\ntarget = "{scorer.target}"\n'
        )
        variables = {**environment(model, tmp_path), "DRAMATURG_CONFIG": str(configuration)}
        command = ("research", "reproduce", "simulbench", "--data", data_dir, "-o", out, "--model", "a")
        finished = await dramaturg(*command, "--limit", str(limit), environment=variables)
    assert finished.code == 0, finished.err
    table = {row["Attributes"]: row for row in read_csv(out / "table-3.csv")}
    for name in ("Simulation Task", "Testing Script"):
        expected = fmean(toxicity(text) for one, text in kept if one == name)
        assert float(table[name]["toxicity"]) == pytest.approx(expected, abs=1e-9)
    assert table["Testing Script"]["toxicity (paper)"] == "0.07"
    assert table["Testing Script"]["insult"] == ""
    # One model has nothing to be compared with.
    assert all("(paper)" in row["Pair of Models"] for row in read_csv(out / "table-1.csv"))
    assert "fewer than two have ratings" in (out / "README.md").read_text()
