"""The tables of SimulBench from the released data, against figures that are calculated here."""

from __future__ import annotations

import hashlib
import json
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
from tests.support.reproductions import check_outputs, environment, read_csv, reproduce

pytestmark = [pytest.mark.data, pytest.mark.timeout(540)]


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


def released(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "simulbench_all.jsonl").read_text().splitlines()]
    for row in rows:
        row["utterances"] = [one["content"] for one in row["dialogue_history"]]
    return rows


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
    texts += [("Testing Script", "\n\n".join(row["utterances"])) for row in released(folder)]
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
