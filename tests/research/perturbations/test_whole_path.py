"""Faults made by a model, evaluated and reported with the commands alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.generation.v1 import generation_service_pb2 as generation
from tests.support.command_line import dramaturg, read_jsonl
from tests.support.judges import all_pass
from tests.support.openai_server import Body, OpenAIServer

STEPS = ["Boil water.", "Put tea in a cup.", "Pour.", "Wait."]


def respond(body: Body) -> Any:
    """Names the first edit that is allowed, and passes every script."""
    form = body["response_format"]["json_schema"]
    if form["name"] == "edits":
        entry = form["schema"]["properties"]["edits"]["items"]["properties"]
        action = entry["action"]["enum"][0]
        return {"idea": "So.", "edits": [{"action": action, "step": 1, "place_after": 3, "text": "Sing."}]}
    request = generation.GenerateRequest(
        messages=[generation.Message(text=body["messages"][-1]["content"])],
        json_format=generation.JsonFormat(name=form["name"], schema=json.dumps(form["schema"])),
    )
    return all_pass(request).text


@pytest.mark.slow
async def test_a_model_makes_faults_that_a_judge_misses(tmp_path: Path) -> None:
    row = {
        "task": {"id": "1", "goal": "Make tea", "constraints": ["at home"]},
        "candidates": [{"id": "a", "script": {"steps": [{"text": text} for text in STEPS]}}],
    }
    rows, perturbed = tmp_path / "rows.jsonl", tmp_path / "perturbed.jsonl"
    rows.write_text(json.dumps(row), encoding="utf-8")
    async with OpenAIServer(respond) as server:
        config = tmp_path / "dramaturg.toml"
        config.write_text(
            f'[generation]\nledger = "{tmp_path / "ledger.sqlite3"}"\n'
            f'[generation.providers.local]\nkind = "chat"\nbase_url = "{server.base_url}"\n'
            'default_model = "m"\n'
        )
        environment = {"DRAMATURG_CONFIG": str(config)}
        made = await dramaturg(
            "research", "perturb", rows, "-o", perturbed, "--by-model", "--json", environment=environment
        )
        bought = sum(server.calls.values())
        await dramaturg("research", "perturb", rows, "-o", perturbed, "--by-model", environment=environment)
        assert sum(server.calls.values()) == bought == 6
        judged = await dramaturg(
            "eval",
            "--kind",
            "scripts",
            perturbed,
            "--out",
            tmp_path / "out",
            "--json",
            environment=environment,
        )
    assert (made.code, judged.code) == (0, 0), made.err + judged.err
    assert made.json["by_operation"] == {"none": 1, "model": 6}
    by_category = {
        one["tags"]["perturbation"]: [step["text"] for step in one["candidates"][0]["script"]["steps"]]
        for one in read_jsonl(perturbed)
    }
    assert by_category["none"] == STEPS
    assert by_category["missing-steps"] == STEPS[1:]
    assert by_category["duplicate-steps"] == [STEPS[0], "Sing.", *STEPS[1:]]
    assert by_category["wrong-order"] == [*STEPS[1:3], STEPS[0], STEPS[3]]
    reported = await dramaturg("research", "perturb", "report", tmp_path / "out", "--json")
    detection = reported.json["detection"]
    assert {one["operation"] for one in detection} == {"all", "model"}
    assert {(one["n"], one["judged"], one["flagged"]) for one in detection} == {(1, 1, 0)}
