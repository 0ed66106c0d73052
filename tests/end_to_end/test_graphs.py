"""Script graphs through every real service, with a model that knows the order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.test_model import configure
from tests.support.command_line import Finished, dramaturg
from tests.support.openai_server import Answer, OpenAIServer

ORDER = ("fill the kettle", "boil the water", "put tea in the cup", "pour the water", "drink the tea")
EDGES = {(0, 1), (1, 3), (2, 3), (3, 4)}
ROW = {
    "reference": {
        "scenario": "drink tea",
        "events": [{"id": str(index), "text": text} for index, text in enumerate(ORDER)],
        "edges": [{"sourceId": str(first), "targetId": str(second)} for first, second in sorted(EDGES)],
    },
    "tags": {"domain": "kitchen"},
}


def places(text: str) -> list[int]:
    """The events that a prompt shows, as places in the right order, as they are shown."""
    found = sorted((text.index(event), place) for place, event in enumerate(ORDER) if event in text)
    return [place for _, place in found]


def answer(body: dict[str, Any]) -> str | Answer:
    shown = body["messages"][-1]["content"]
    if "response_format" not in body:
        first, second = places(shown)
        word = "yes" if (first, second) in EDGES else "no"
        return Answer(word, tokens=[(word, -0.05)])
    numbers = {place: number for number, place in enumerate(places(shown), start=1)}
    edges = [{"before": numbers[first], "after": numbers[second]} for first, second in sorted(EDGES)]
    return json.dumps({"reasoning": "So one makes tea.", "edges": edges})


async def evaluate(server: OpenAIServer, folder: Path, *options: str) -> Finished:
    configure(server, folder)
    (folder / "row.jsonl").write_text(json.dumps(ROW) + "\n")
    environment = {"DRAMATURG_CONFIG": str(folder / "dramaturg.toml")}
    row, out = folder / "row.jsonl", folder / "out"
    return await dramaturg(
        "eval", "--kind", "graphs", row, "--json", "--out", out, *options, environment=environment
    )


@pytest.mark.parametrize(("method", "calls"), [("end-to-end", 1), ("pairwise", 20)])
async def test_edges_are_predicted_aggregated_and_scored(method: str, calls: int, tmp_path: Path) -> None:
    async with OpenAIServer(answer) as server:
        done = await evaluate(server, tmp_path / "a", "--set", f"method={method}")
        # The check of the model has no messages.
        bought = sum(bool(request.body["messages"]) for request in server.requests)
    assert done.code == 0, done.err
    assert bought == calls
    result = json.loads((tmp_path / "a" / "out" / "results.jsonl").read_text())
    assert result["graphs"][0]["score"]["exactMatch"]
    assert result["graphs"][0]["score"]["measures"]["f1"] == 1
