"""``dramaturg eval --kind dialogues`` as a user runs it, against a gateway over real gRPC."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from typer.testing import CliRunner, Result

from dramaturg.api.common.v1 import dialogue_pb2, verdict_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask, Utterance
from dramaturg.api.evaluation.v1 import dialogues_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueScript, EvaluateDialoguesRequest
from dramaturg.api.generation.v1.authoring_dialogues_pb2 import ReplyRequest, ReplyResponse
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pairs_pb
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairRequest, ComparePairResponse
from dramaturg.api.judging.v1.rating_judge_service_pb2 import (
    RateReplyRequest,
    RateReplyResponse,
    Rating,
)
from dramaturg.api.judging.v1.text_scorer_service_pb2 import ScoreTextsRequest, ScoreTextsResponse, TextScore
from dramaturg.cli.main import app
from tests.support.evaluations import CALL, gateway_in_a_thread

pytestmark = pytest.mark.usefixtures("runs_enabled")

SUBSETS = (
    dialogues_pb2.SCRIPT_SUBSET_LAST_ONLY,
    dialogues_pb2.SCRIPT_SUBSET_FIRST_CHALLENGE,
    dialogues_pb2.SCRIPT_SUBSET_SUBSEQUENT_CHALLENGE,
)


async def reply(request: ReplyRequest) -> ReplyResponse:
    if request.options.model == "bad" and request.utterances[0].text == "3":
        return ReplyResponse(abstain_reason=verdict_pb2.ABSTAIN_REASON_REFUSED, provenance=CALL)
    return ReplyResponse(text=request.options.model, provenance=CALL)


async def rate(request: RateReplyRequest) -> RateReplyResponse:
    """The good model gets 10, the bad one the number of the script."""
    number = float(request.utterances[0].text)
    value = 10.0 if request.response == "good" or not number else number
    return RateReplyResponse(rating=Rating(value=value, provenance=CALL))


async def compare(request: ComparePairRequest) -> ComparePairResponse:
    first = pairs_pb.PREFERENCE_FIRST if request.first == "good" else pairs_pb.PREFERENCE_SECOND
    return ComparePairResponse(preference=first, votes=[pairs_pb.RoleVote(preference=first)], provenance=CALL)


async def score(request: ScoreTextsRequest) -> ScoreTextsResponse:
    return ScoreTextsResponse(attribute="toxicity", scores=[TextScore(value=request.texts[0] == "bad")])


ROLES: Any = {
    "author": {"Reply": reply},
    "rating-judge": {"RateReply": rate},
    "pair-judge": {"ComparePair": compare},
}


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    requests = [
        EvaluateDialoguesRequest(
            script=DialogueScript(
                id=str(number),
                task=SimulationTask(
                    name=("Chess", "Titles")[number % 2],
                    description="Play.",
                    kind=dialogue_pb2.SIMULATION_KIND_STATEFUL,
                ),
                utterances=[Utterance(speaker=dialogue_pb2.SPEAKER_USER, text=str(number))],
                subset=SUBSETS[number % 3],
            )
        )
        for number in range(6)
    ]
    file = tmp_path / "scripts.jsonl"
    file.write_text("".join(json.dumps(MessageToDict(one)) + "\n" for one in requests), encoding="utf-8")
    return file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(
        app, ["eval", "--kind", "dialogues", *map(str, arguments)], env={"COLUMNS": "200"}
    )


def test_ratings_and_pairs_as_json(rows: Path, tmp_path: Path) -> None:
    with gateway_in_a_thread(ROLES) as target:
        result = run(
            *(rows, "--target", target, "--model", "good", "--model", "bad", "--pair", "all", "--json"),
            *("--out", tmp_path / "out"),
        )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["sample_count"] == 6
    assert found["model_failures"] == [{"model": "bad", "reason": "REFUSED", "judgement_count": 2}]
    dialogues = found["dialogues"]
    # Script 0 is aced by both; on script 3 the bad model refuses.
    assert (dialogues["aced_script_count"], found["options"]["aced_kept"]) == (1, False)
    assert dialogues["unusable_replies"] == [{"model": "bad", "reason": "REFUSED", "count": 1}]
    assert dialogues["abstentions_by_reason"] == {}
    scores = {(one["model"], one["group"]): one for one in dialogues["ratings"]}
    assert (scores["bad", "all"]["script_count"], scores["bad", "all"]["mean"]["count"]) == (5, 5)
    # The refusal has the lowest rating.
    assert scores["bad", "all"]["mean"]["value"] == (1 + 2 + 4 + 5 + 1) / 5
    assert scores["bad", "hard"]["mean"]["value"] == (1 + 2 + 4 + 5) / 4
    assert scores["bad", "first_challenge"]["mean"]["value"] == (1 + 4) / 2
    assert scores["bad", "last_only"]["mean"]["value"] == 1
    assert scores["good", "last_only"]["mean"]["count"] == 1
    (everything, hard) = dialogues["pairs"]
    assert (everything["win_count"], everything["abstained_count"], everything["difference"]["value"]) == (
        6,
        0,
        1.0,
    )
    assert (hard["group"], hard["win_count"]) == ("hard", 4)
    assert found["usage"]["provider_call_count"] == 12 + 11 + 5
    # Without the aced script: chess 10, 10, 2, 4; titles 10, 10, 10, 1, 5, 1.
    assert [(one["task"], one["mean"]["value"]) for one in dialogues["tasks"] if one["group"] == "all"] == [
        ("Titles", 37 / 6),
        ("Chess", 6.5),
    ]
    assert len((tmp_path / "out" / "results.jsonl").read_text().splitlines()) == 6


def test_tables_for_people(rows: Path, tmp_path: Path) -> None:
    with gateway_in_a_thread(ROLES) as target:
        result = run(
            *(rows, "--target", target, "--model", "good", "--model", "bad", "--pair", "bad,good"),
            *("--out", tmp_path / "out"),
        )
    assert result.exit_code == 0, result.output
    for text in ("1 scripts that every model aces", "subsequent_challenge", "-100.0 pp", "refused"):
        assert text in result.stdout


def test_scores_for_an_attribute(rows: Path, tmp_path: Path) -> None:
    arguments = (
        "--model",
        "good",
        "--model",
        "bad",
        "--judge",
        "text-scorer=fake",
        "--out",
        tmp_path / "out",
    )
    with gateway_in_a_thread({**ROLES, "text-scorer": {"ScoreTexts": score}}) as target:
        result = run(rows, "--target", target, *arguments, "--json")
        table = run(rows, "--target", target, *arguments)
    assert result.exit_code == 0, result.output
    good, bad = json.loads(result.stdout)["dialogues"]["attributes"]
    mean = {"value": 0.0, "lower": 0.0, "count": 6, "total": 6}
    assert mean.items() <= good.pop("mean").items()
    assert good == {
        "model": "good",
        "judge": "fake",
        "attribute": "toxicity",
        "high_count": 0,
        "high_share": 0.0,
        "abstentions_by_reason": {},
    }
    # The bad model refuses to answer one script; that all ace another one is nothing to toxicity.
    assert (bad["mean"]["total"], bad["mean"]["count"], bad["mean"]["value"]) == (6, 5, 1.0)
    assert (bad["high_share"], bad["abstentions_by_reason"]) == (1.0, {"REFUSED": 1})
    for text in ("toxicity", "100.0 %", "0.48 to 1.00"):
        assert text in table.stdout


def test_nothing_is_scored_unless_somebody_is_named(rows: Path, tmp_path: Path) -> None:
    with gateway_in_a_thread({**ROLES, "text-scorer": {"ScoreTexts": score}}) as target:
        result = run(rows, "--target", target, "--model", "good", "--json", "--out", tmp_path / "out")
    assert json.loads(result.stdout)["dialogues"]["attributes"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pair", "good"], "MODEL,MODEL"),
        (["--judge-model", "gpt"], "ROLE=MODEL"),
    ],
)
def test_wrong_usage_is_refused(rows: Path, arguments: list[str], message: str) -> None:
    result = run(rows, "--target", "127.0.0.1:1", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_judge_that_nobody_knows_is_refused_before_anything_is_asked(rows: Path) -> None:
    asked: list[Any] = []

    async def count(request: ReplyRequest) -> ReplyResponse:
        asked.append(request)
        return await reply(request)

    with gateway_in_a_thread({**ROLES, "author": {"Reply": count}}) as target:
        result = run(rows, "--target", target, "--model", "good", "--judge", "rating-judge=nobody")
    assert result.exit_code == 2
    assert "'nobody'; the judges of 'rating-judge' are fake" in result.stderr
    assert not asked
