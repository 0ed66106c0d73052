"""Dialogues from the command line to a model's server, with the real services and a planted model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from typer.testing import CliRunner

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask
from dramaturg.api.evaluation.v1.dialogues_pb2 import SimulateDialogueRequest
from dramaturg.cli.main import app
from tests.support.evaluations import gateway_in_a_thread
from tests.support.figures import figure
from tests.support.openai_server import Body, Misbehaviour, OpenAIServer
from tests.support.readers import fenced, prompt_of

pytestmark = pytest.mark.usefixtures("runs_enabled")

GOOD, BAD = "good-model", "bad-model"


def planted(body: Body) -> str | Body:
    """Plays every part: what is asked for shows in the form of the answer that is wanted."""
    form = body.get("response_format")
    if form is None:
        return f"{body['model']} after {len(body['messages'])}"
    wanted = form["json_schema"]["schema"]["properties"]
    prompt = prompt_of(body)
    if "utterance" in wanted:
        return {"strategy": "new-request", "utterance": f"request {prompt.count('[BEGIN turn ') // 2 + 1}"}
    if "turn" in wanted:
        return {"reason": "Seen.", "turn": 3 if "hard" in fenced(prompt, "task") else 0}
    if "rating" in wanted:
        return {"reason": "Read.", "rating": 9 if GOOD in prompt else 4}
    return {"reason": "Read.", "vote": "1" if GOOD in fenced(prompt, "text 1") else "2"}


def run(*arguments: object) -> Any:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_dialogues_are_held_cut_continued_and_judged(tmp_path: Path) -> None:
    rows = [
        SimulateDialogueRequest(
            task=SimulationTask(
                id=name,
                name=name,
                description=f"Be {name}. My first request is one.",
                kind=dialogue_pb2.SIMULATION_KIND_STATEFUL,
            )
        )
        for name in ("a hard game", "an easy game")
    ]
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps(MessageToDict(row)) + "\n" for row in rows), encoding="utf-8")
    server = OpenAIServer(planted)
    with gateway_in_a_thread({}, model=server) as target:
        simulated = run("research", "simulate", file, "--target", target, "--out", tmp_path / "sim")
        judged = run(
            *("eval", "--kind", "dialogues", tmp_path / "sim" / "scripts.jsonl", "--target", target),
            *("--model", GOOD, "--model", BAD, "--pair", "all", "--out", tmp_path / "out"),
        )
    (figures,) = simulated["simulations"]["figures"]
    assert simulated["sample_count"] == figures["dialogue_count"] == 6
    assert (figures["dialogues_by_turn_count"], figures["dialogues_by_early_end"]) == ({"4": 6}, {})
    assert figures["requests_by_strategy"] == {"new-request": 18}
    assert figures["dialogues_by_challenging_turn"] == {"0": 3, "3": 3}
    assert {one["subset"]: one["count"] for one in figures["scripts"]} == {
        "first_challenge": 3,
        "subsequent_challenge": 3,
        "last_only": 3,
    }
    # The user agent is warm, the simulator is not, and each has its own token cap (section 3.2).
    users = [body for body in server.bodies if "utterance" in str(body.get("response_format"))]
    replies = [body for body in server.bodies if body["messages"] and "response_format" not in body]
    assert {body["temperature"] for body in users} == {1.2}
    assert {body["temperature"] for body in replies} == {0}
    scores = {(one["model"], one["group"]): one for one in judged["dialogues"]["ratings"]}
    assert (scores[GOOD, "all"]["mean"]["count"], scores[GOOD, "all"]["mean"]["value"]) == (9, 9)
    assert scores[BAD, "hard"]["mean"]["value"] == 4
    everything = figure(judged["dialogues"]["pairs"], group="all")
    assert (everything["win_count"], everything["tie_count"], everything["lose_count"]) == (9, 0, 0)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.timeout(540)
def test_all_released_scripts_lose_nothing_when_a_seventh_of_the_calls_fails(
    data_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "scripts.jsonl"
    source = data_dir / "simulbench" / "simulbench_all.jsonl"
    converted = CliRunner().invoke(app, ["research", "convert", "simulbench", str(source), str(file)])
    assert converted.exit_code == 0, converted.output
    trouble = Misbehaviour(dict.fromkeys(("server_error", "rate_limit", "reset"), 1 / 21), seed=7)
    server = OpenAIServer(planted, trouble, latency=0.02, record=False)
    with gateway_in_a_thread({}, model=server) as target:
        found = run(
            *("eval", "--kind", "dialogues", file, "--target", target, "--model", GOOD, "--model", BAD),
            *("--pair", "all", "--concurrency", 32, "--out", tmp_path / "out"),
        )
    assert (found["sample_count"], found["failed_sample_count"]) == (500, 0)
    assert (found["dialogues"]["unusable_replies"], found["abstentions_by_reason"]) == ([], {})
    scores = {(one["model"], one["group"]): one for one in found["dialogues"]["ratings"]}
    assert {key: one["mean"]["count"] for key, one in scores.items() if key[0] == GOOD} == {
        (GOOD, "all"): 500,
        (GOOD, "hard"): 275,
        (GOOD, "last_only"): 225,
        (GOOD, "first_challenge"): 93,
        (GOOD, "subsequent_challenge"): 182,
        (GOOD, "stateless"): 234,
        (GOOD, "stateful"): 266,
        (GOOD, "first_challenge, stateless"): 38,
        (GOOD, "first_challenge, stateful"): 55,
    }
    pairs = found["dialogues"]["pairs"]
    assert [(one["win_count"], one["abstained_count"]) for one in pairs] == [
        (500, 0),
        (275, 0),
    ]
    usage = found["usage"]
    # A reply and a rating for each model, and a pair in both orders.
    assert usage["provider_call_count"] + usage["cache_hit_count"] == 500 * (2 + 2 + 2)
    assert sum(server.troubles.values()) > 300
