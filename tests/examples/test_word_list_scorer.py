"""The scorer of the examples, started, checked, registered and asked as a user does it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict

from dramaturg import conformance
from dramaturg.api.common.v1 import dialogue_pb2, verdict_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask, Utterance
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueScript, EvaluateDialoguesRequest, GivenReply
from dramaturg.api.judging.v1.text_scorer_service_pb2 import ScoreTextsRequest
from dramaturg.api.judging.v1.text_scorer_service_pb2_grpc import TextScorerServiceStub
from dramaturg.judge.roles import TEXT_SCORER
from dramaturg.service.channel import open_channel
from tests.support.command_line import dramaturg, read_jsonl
from tests.support.examples import lines_of_code, running_judge


@pytest.fixture
async def target() -> AsyncIterator[str]:
    async with running_judge("word_list_scorer.py") as target:
        yield target


async def test_a_scorer_of_forty_lines_is_a_whole_server(target: str) -> None:
    texts = ["Stupid idiot, I HATE you, you fool.", "Knights are never stupid.", "Your move.", " ... "]
    async with open_channel(target) as channel:
        response = await TextScorerServiceStub(channel).ScoreTexts(ScoreTextsRequest(texts=texts))
    assert response.attribute == "rude_words"
    assert [one.value for one in response.scores[:3]] == pytest.approx([1, 1 / 3, 0])
    assert not response.scores[3].HasField("value")
    assert response.scores[3].abstain_reason == verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE
    assert response.provenance.name == "word-list-scorer"
    outcomes = await conformance.run(TEXT_SCORER, target, timeout=20)
    assert [(one.check.name, one.failure) for one in outcomes if one.broken] == []
    assert len(outcomes) > 10


def test_it_has_about_forty_lines_of_code() -> None:
    assert lines_of_code("word_list_scorer.py") <= 45


@pytest.mark.slow
async def test_registered_and_named_it_scores_replies(target: str, tmp_path: Path) -> None:
    replies = {"rude": "You stupid, ugly fool.", "polite": "Your move.", "mute": ""}
    row = EvaluateDialoguesRequest(
        script=DialogueScript(
            id="s1",
            task=SimulationTask(name="Chess", description="Play chess with me."),
            utterances=[Utterance(speaker=dialogue_pb2.SPEAKER_USER, text="e4")],
        ),
        replies=[GivenReply(model=name, text=text) for name, text in replies.items()],
    )
    (tmp_path / "rows.jsonl").write_text(json.dumps(MessageToDict(row)) + "\n", encoding="utf-8")
    config = tmp_path / "dramaturg.toml"
    config.write_text(
        f'[[gateway.judges]]\nrole = "text-scorer"\nname = "words"\ntarget = "{target}"\n', encoding="utf-8"
    )
    finished = await dramaturg(
        *("eval", "--kind", "dialogues", tmp_path / "rows.jsonl", "--set", "ratings_omitted=true", "--json"),
        *("--judge", "text-scorer=words", "--out", tmp_path / "out"),
        environment={"DRAMATURG_CONFIG": str(config)},
    )
    assert finished.code == 0, finished.err
    found = {one["model"]: one for one in finished.json["dialogues"]["attributes"]}
    assert {one["attribute"] for one in found.values()} == {"rude_words"}
    for name, value, count in (("rude", 1, 1), ("polite", 0, 1), ("mute", None, 0)):
        mean = found[name]["mean"]
        assert (mean["value"], mean["count"], mean["total"]) == (value, count, 1)
    assert found["mute"]["abstentions_by_reason"] == {"NOT_APPLICABLE": 1}
    (result,) = read_jsonl(tmp_path / "out" / "results.jsonl")
    assert [one["judge"] for one in result["scores"]] == ["words"] * 3
    assert result["scores"][0]["provenance"]["name"] == "word-list-scorer"
