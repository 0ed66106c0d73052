"""AuthoringService.NextUserTurn and Reply over real gRPC."""

from __future__ import annotations

import hashlib
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import dialogue_pb2, verdict_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask, Utterance
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling
from dramaturg.api.generation.v1 import authoring_dialogues_pb2 as pb
from dramaturg.service.errors import from_rpc_error
from tests.support.generation import generation_service
from tests.support.openai_server import Answer, Body, OpenAIServer

TERMINAL = SimulationTask(name="Linux terminal", description="Act as a terminal. My first command is pwd.")
USER, SIMULATOR = dialogue_pb2.SPEAKER_USER, dialogue_pb2.SPEAKER_SIMULATOR


def dialogue(*texts: str) -> list[Utterance]:
    """Utterances in turn, the user's first."""
    return [
        Utterance(speaker=SIMULATOR if index % 2 else USER, text=text) for index, text in enumerate(texts)
    ]


OPENING = dialogue(TERMINAL.description, "/home/doe")


def fenced(label: str, text: str) -> str:
    marker = hashlib.sha256(f"{label}\n{text}".encode()).hexdigest()[:8]
    return f"[BEGIN {label} {marker}]\n{text}\n[END {label} {marker}]"


def said(text: str, strategy: str = "next-step") -> Body:
    return {"strategy": strategy, "utterance": text}


async def next_turn(answer: Any, **fields: Any) -> tuple[pb.NextUserTurnResponse, list[Body]]:
    request = pb.NextUserTurnRequest(**{"task": TERMINAL, "utterances": OPENING, **fields})
    async with OpenAIServer(lambda _: answer) as server, generation_service(server) as service:
        response = await service.authoring.NextUserTurn(request)
    return response, server.bodies


async def reply(answer: Any, *texts: str, **fields: Any) -> tuple[pb.ReplyResponse, list[Body]]:
    request = pb.ReplyRequest(utterances=dialogue(*texts), **fields)
    async with OpenAIServer(lambda _: answer) as server, generation_service(server) as service:
        response = await service.authoring.Reply(request)
    return response, server.bodies


async def test_a_rejected_request_is_shown_to_the_user_agent() -> None:
    _, [plain] = await next_turn(said("ls"))
    _, [body] = await next_turn(said("ls"), rejected=["Bye."])
    shown = body["messages"][-1]["content"]
    assert fenced("rejected request", "Bye.") in shown
    assert body["messages"][:-1] == plain["messages"][:-1]
    assert "rejected" not in plain["messages"][-1]["content"]


async def test_the_user_agent_plays_a_person() -> None:
    _, [plain] = await next_turn(said("ls"))
    _, [body] = await next_turn(said("ls"), persona="A nurse in a hurry.")
    shown = body["messages"][-1]["content"]
    assert "You are this person" in shown
    assert fenced("persona", "A nurse in a hurry.") in shown
    assert body["messages"][:-1] == plain["messages"][:-1]
    assert "person" not in plain["messages"][-1]["content"]


async def test_the_user_agent_sees_the_dialogue_turn_by_turn_and_four_strategies() -> None:
    utterances = [*OPENING, *dialogue("ls", "")]
    response, [body] = await next_turn(said(" cd /tmp "), utterances=utterances)
    assert response.utterance == Utterance(speaker=USER, text="cd /tmp", strategy="next-step")
    assert response.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    shown = body["messages"][-1]["content"]
    parts = [
        "What is simulated:\n" + fenced("task", "Linux terminal"),
        "The dialogue so far, in which you are the user:\n"
        + "\n".join(
            [
                fenced("turn 1 user", TERMINAL.description),
                fenced("turn 1 simulator", "/home/doe"),
                fenced("turn 2 user", "ls"),
                fenced("turn 2 simulator", ""),
            ]
        ),
    ]
    assert shown.startswith("\n\n".join(parts) + "\n\nHow you go on")
    for strategy in ("improvement: ", "next-step: ", "new-request: ", "other: "):
        assert f"\n{strategy}" in shown
    assert "The form of a request" not in shown
    assert "(none)" not in shown
    assert (body["temperature"], body["max_tokens"]) == (1.2, 300)
    assert '"next-step" | "new-request"' in body["messages"][0]["content"]
    provenance = response.provenance
    assert (provenance.name, [prompt.name for prompt in provenance.prompts]) == (
        "llm-author",
        ["next_user_turn"],
    )


async def test_a_task_s_own_strategy_and_form_of_request_take_their_place() -> None:
    task = SimulationTask(
        name="Quiz", description="Ask me.", request_type="your answer", strategy_type="Answer the question."
    )
    response, [body] = await next_turn({"utterance": "Paris"}, task=task)
    shown = body["messages"][-1]["content"]
    assert response.utterance == Utterance(speaker=USER, text="Paris", strategy="Answer the question.")
    assert fenced("strategy", "Answer the question.") in shown
    assert "The form of a request:\n" + fenced("form of a request", "your answer") in shown
    assert fenced("task description", "Ask me.") in shown
    assert "new-request" not in shown
    assert "strategy" not in body["response_format"]["json_schema"]["schema"]["properties"]


async def test_the_user_agent_is_asked_once_more_and_then_abstains() -> None:
    response, bodies = await next_turn(said("ls", strategy="5"))
    assert response.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNPARSABLE
    assert not response.HasField("utterance")
    assert len(bodies) == len(response.provenance.completions) == 2
    answers: list[Any] = ["Let me think.", said("ls", "other")]
    async with OpenAIServer(lambda _: answers.pop(0)) as server, generation_service(server) as service:
        response = await service.authoring.NextUserTurn(
            pb.NextUserTurnRequest(task=TERMINAL, utterances=OPENING)
        )
    assert response.utterance == Utterance(speaker=USER, text="ls", strategy="other")
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer("", refusal="No."), verdict_pb2.ABSTAIN_REASON_REFUSED),
        (Answer('{"str', finish_reason="length"), verdict_pb2.ABSTAIN_REASON_TRUNCATED),
        (Answer(""), verdict_pb2.ABSTAIN_REASON_EMPTY),
        (said("  "), verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
        (said("x" * 200_001), verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
    ],
)
async def test_a_user_agent_that_says_nothing_abstains(answer: Any, reason: Any) -> None:
    response, _ = await next_turn(answer)
    assert (response.abstain_reason, response.HasField("utterance")) == (reason, False)


async def test_repeats_are_bought_anew() -> None:
    async with OpenAIServer(lambda _: said("ls")) as server, generation_service(server) as service:
        for index in (0, 1, 1):
            request = pb.NextUserTurnRequest(task=TERMINAL, utterances=OPENING)
            request.options.repeat_index = index
            await service.authoring.NextUserTurn(request)
    assert len(server.bodies) == 2


async def test_a_long_dialogue_is_cut_visibly() -> None:
    response, [body] = await next_turn(said("ls"), utterances=dialogue("Begin.", "y" * 200_000))
    shown = body["messages"][-1]["content"]
    assert len(shown) < 210_000
    assert "[cut here: " in shown
    assert response.provenance.parameters["turn_1_simulator.shown"] == "199994 of 200000 characters"


async def test_a_reply_is_asked_for_with_the_dialogue_and_nothing_else() -> None:
    response, [body] = await reply("total 0\n", TERMINAL.description, "", "ls")
    assert body == {
        "model": "m",
        "messages": [
            {"role": "user", "content": TERMINAL.description},
            {"role": "assistant", "content": ""},
            {"role": "user", "content": "ls"},
        ],
        "temperature": 0,
        "max_tokens": 1024,
    }
    assert response.text == "total 0\n"
    assert response.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    assert not response.provenance.prompts
    assert response.provenance.parameters == {"temperature": "0", "max_output_tokens": "1024"}


async def test_a_reply_samples_as_the_request_says() -> None:
    options = JudgeOptions(model="p0/other", sampling=Sampling(temperature=1, max_output_tokens=5))
    _, [body] = await reply("x", "hello", options=options)
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("other", 1, 5)


@pytest.mark.parametrize(
    ("answer", "text", "reason", "calls"),
    [
        (Answer(""), "", verdict_pb2.ABSTAIN_REASON_UNSPECIFIED, 2),
        (
            Answer("half of", finish_reason="length"),
            "half of",
            verdict_pb2.ABSTAIN_REASON_TRUNCATED,
            2,
        ),
        (Answer("", refusal="I will not."), "I will not.", verdict_pb2.ABSTAIN_REASON_REFUSED, 1),
    ],
)
async def test_an_unusual_reply_is_given_with_its_reason(
    answer: Answer, text: str, reason: Any, calls: int
) -> None:
    response, bodies = await reply(answer, "hello")
    assert (response.text, response.abstain_reason) == (text, reason)
    assert len(bodies) == calls


@pytest.mark.parametrize(
    ("speakers", "paths"),
    [
        ([USER], ["utterances"]),
        ([SIMULATOR, USER, SIMULATOR], ["utterances[0].speaker", "utterances[1].speaker"]),
        ([USER, USER, SIMULATOR, SIMULATOR], ["utterances[1].speaker", "utterances[2].speaker"]),
        ([USER, 0], ["utterances[1].speaker"]),
    ],
)
async def test_utterances_out_of_turn_are_refused(speakers: list[Any], paths: list[str]) -> None:
    request = pb.NextUserTurnRequest(
        task=TERMINAL, utterances=[Utterance(speaker=speaker, text="x") for speaker in speakers]
    )
    async with OpenAIServer() as server, generation_service(server) as service:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.authoring.NextUserTurn(request)
        assert not server.bodies
    violations = [violation.field for violation in from_rpc_error(caught.value).violations]
    assert violations[: len(paths)] == paths


async def test_a_reply_is_asked_for_after_the_user_only() -> None:
    async with OpenAIServer() as server, generation_service(server) as service:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.authoring.Reply(pb.ReplyRequest(utterances=OPENING))
    error = from_rpc_error(caught.value)
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [tuple(violation) for violation in error.violations] == [
        ("utterances", "must end with the user's utterance")
    ]
