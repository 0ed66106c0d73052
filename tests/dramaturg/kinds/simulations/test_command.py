"""``dramaturg research simulate`` as a user runs it, with a planted simulator and user agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, Parse
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1 import dialogue_pb2, verdict_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask, Utterance
from dramaturg.api.evaluation.v1.dialogues_pb2 import EvaluateDialoguesRequest, SimulateDialogueRequest
from dramaturg.api.generation.v1.authoring_dialogues_pb2 import (
    NextUserTurnRequest,
    NextUserTurnResponse,
    ReplyRequest,
    ReplyResponse,
)
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import (
    FindChallengingTurnRequest,
    FindChallengingTurnResponse,
)
from dramaturg.cli.main import app
from tests.support.evaluations import CALL, gateway_in_a_thread

pytestmark = pytest.mark.usefixtures("runs_enabled")


async def reply(request: ReplyRequest) -> ReplyResponse:
    return ReplyResponse(text=f"{request.options.model} {len(request.utterances)}", provenance=CALL)


async def next_request(request: NextUserTurnRequest) -> NextUserTurnResponse:
    """The second dialogue's user has nothing more to say after the second turn."""
    turn = len(request.utterances) // 2 + 1
    if request.options.repeat_index == 1 and turn == 3:
        return NextUserTurnResponse(abstain_reason=verdict_pb2.ABSTAIN_REASON_UNPARSABLE, provenance=CALL)
    strategy = ("next-step", "new-request")[turn % 2]
    said = Utterance(speaker=dialogue_pb2.SPEAKER_USER, text=f"turn {turn}", strategy=strategy)
    return NextUserTurnResponse(utterance=said, provenance=CALL)


async def find(request: FindChallengingTurnRequest) -> FindChallengingTurnResponse:
    """The stateful task's first dialogue has its third turn; nobody can tell of the third."""
    turns = len(request.utterances) // 2
    hard = request.task.kind == dialogue_pb2.SIMULATION_KIND_STATEFUL and turns == 4
    return FindChallengingTurnResponse(turn=3 if hard else 0, provenance=CALL)


ROLES: Any = {
    "author": {"Reply": reply, "NextUserTurn": next_request},
    "challenge-judge": {"FindChallengingTurn": find},
}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    requests = [
        SimulateDialogueRequest(
            task=SimulationTask(id=name, name=name, description=f"Be a {name}.", kind=kind),
            tags={"source": "own"},
        )
        for name, kind in (
            ("shell", dialogue_pb2.SIMULATION_KIND_STATEFUL),
            ("speller", dialogue_pb2.SIMULATION_KIND_STATELESS),
        )
    ]
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps(MessageToDict(one)) + "\n" for one in requests), encoding="utf-8")
    return file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["research", "simulate", *map(str, arguments)], env={"COLUMNS": "200"})


def test_dialogues_are_held_counted_and_cut(rows: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with gateway_in_a_thread(ROLES) as target:
        result = run(rows, "--target", target, "--simulator", "sim", "--json", "--out", folder)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["sample_count"], found["leaderboard"]) == (6, [])
    (figures,) = found["simulations"]["figures"]
    assert figures["dialogue_count"] == 6
    assert figures["dialogues_by_turn_count"] == {"2": 2, "4": 4}
    early = {"turn 3: the user agent has no usable request (UNPARSABLE)": 2}
    assert figures["dialogues_by_early_end"] == early
    assert figures["requests_by_strategy"] == {"new-request": 4, "next-step": 2 + 4 + 4}
    assert figures["dialogues_by_challenging_turn"] == {"0": 4, "3": 2}
    assert figures["scripts"] == [
        {"subset": "first_challenge", "simulation_kind": "stateful", "count": 2},
        {"subset": "last_only", "simulation_kind": "stateful", "count": 1},
        {"subset": "last_only", "simulation_kind": "stateless", "count": 3},
        {"subset": "subsequent_challenge", "simulation_kind": "stateful", "count": 2},
    ]
    results = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    assert [one["turnCount"] for one in results] == [4, 2, 4, 4, 2, 4]
    scripts = [
        Parse(line, EvaluateDialoguesRequest())
        for line in (folder / "scripts.jsonl").read_text().splitlines()
    ]
    assert [one.script.id for one in scripts] == [
        "shell/0/3",
        "shell/0/4",
        "shell/1/2",
        "shell/2/3",
        "shell/2/4",
        "speller/0/4",
        "speller/1/2",
        "speller/2/4",
    ]
    assert dict(scripts[0].tags) == {"source": "own", "subset": "first_challenge", "kind": "stateful"}
    assert [one.text for one in scripts[0].script.utterances] == [
        "Be a shell.",
        "sim 1",
        "turn 2",
        "sim 3",
        "turn 3",
    ]


def test_tables_for_people_and_fewer_turns(rows: Path, tmp_path: Path) -> None:
    with gateway_in_a_thread(ROLES) as target:
        result = run(
            *(rows, "--target", target, "--dialogues", 1, "--turns", 2, "--limit", 1),
            *("--out", tmp_path / "out"),
        )
    assert result.exit_code == 0, result.output
    for text in ("Complete turns", "First challenging turn", "last_only stateful", "next-step"):
        assert text in result.stdout


def test_dialogues_are_the_rows_of_a_run(rows: Path, tmp_path: Path) -> None:
    made = tmp_path / "dialogues.jsonl"
    result = run(rows, "--dialogues", 2, "--simulator", "sim", "--rows", made)
    assert result.exit_code == 0, result.output
    requests = [Parse(line, SimulateDialogueRequest()) for line in made.read_text().splitlines()]
    assert [(one.task.id, one.dialogue_index) for one in requests] == [
        *(("shell", 0), ("shell", 1)),
        *(("speller", 0), ("speller", 1)),
    ]
    assert {one.simulator_model for one in requests} == {"sim"}


def test_dialogues_have_the_personas_by_turns(rows: Path, tmp_path: Path) -> None:
    people, made = tmp_path / "people.txt", tmp_path / "dialogues.jsonl"
    people.write_text("a nurse\n\na pilot\n")
    result = run(rows, "--dialogues", 3, "--personas", people, "--rows", made)
    assert result.exit_code == 0, result.output
    requests = [Parse(line, SimulateDialogueRequest()) for line in made.read_text().splitlines()]
    assert [one.persona for one in requests] == ["a nurse", "a pilot", "a nurse"] * 2
    assert [one.tags["persona"] for one in requests] == ["1", "2", "1"] * 2
    result = run(rows, "--dialogues", 4, "--personas", people, "--user", "x", "--user", "y", "--rows", made)
    assert result.exit_code == 0, result.output
    requests = [Parse(line, SimulateDialogueRequest()) for line in made.read_text().splitlines()]
    expected = [("x", "a nurse"), ("y", "a nurse"), ("x", "a pilot"), ("y", "a pilot")]
    assert [(one.user_model, one.persona) for one in requests] == expected * 2
    assert [one.tags["user"] for one in requests] == ["x", "y"] * 4
    asked: list[str] = []

    async def listen(request: NextUserTurnRequest) -> NextUserTurnResponse:
        asked.append(request.persona)
        return await next_request(request)

    author = {**ROLES["author"], "NextUserTurn": listen}
    with gateway_in_a_thread({**ROLES, "author": author}) as target:
        options = ("--target", target, "--dialogues", 2, "--turns", 2, "--limit", 1, "--personas", people)
        result = run(rows, *options, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert set(asked) == {"a nurse", "a pilot"}
    people.write_bytes(b"\xff")
    assert run(rows, "--dialogues", 1, "--personas", people, "--rows", made).exit_code == 2
    people.write_text("\n")
    assert run(rows, "--dialogues", 1, "--personas", people, "--rows", made).exit_code == 2


def test_wrong_usage_is_refused(rows: Path) -> None:
    result = run(rows, "--target", "127.0.0.1:1", "--judge-model", "gpt")
    assert (result.exit_code, "ROLE=MODEL" in result.stderr) == (2, True)
    assert run(rows, "--target", "127.0.0.1:1", "--turns", "200").exit_code == 2
