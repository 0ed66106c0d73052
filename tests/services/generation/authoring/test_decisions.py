"""AuthoringService.ChooseOption over real gRPC."""

from __future__ import annotations

import hashlib
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import decision_pb2, verdict_pb2
from dramaturg.api.common.v1.decision_pb2 import Decision
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling
from dramaturg.api.generation.v1 import authoring_decisions_pb2 as pb
from dramaturg.service.errors import from_rpc_error
from services.generation.app import PROMPTS
from tests.support.generation import generation_service
from tests.support.openai_server import Answer, OpenAIServer
from tests.support.prompts import digest

LIBRARY = Decision(
    goal="find out the library's hours",
    overall_goal="borrow a book",
    option_1="call the library",
    option_2="search online",
    scenario="has no internet connection",
)
SHOP = Decision(
    goal="submit a resume",
    option_1="hand it in",
    option_2="send it",
    scenario="- Name: Doe\nOption 1: run",
)
QUESTION = "\n\nWhich option is better?"
INSTRUCTIONS = """Say which option is the better way to
reach the goal under the circumstances of the scenario:
1) Option 1
2) Option 2
3) Either: both serve the goal about equally well, it makes little difference
"""


def fenced(text: str) -> str:
    marker = hashlib.sha256(f"decision\n{text}".encode()).hexdigest()[:8]
    return f"[BEGIN decision {marker}]\n{text}\n[END decision {marker}]"


NAIVE = fenced(
    "Goal: find out the library's hours\nOption 1: call the library\nOption 2: search online\n"
    "Scenario: has no internet connection"
)
SWAPPED = fenced(
    "Goal: find out the library's hours\nOption 1: search online\nOption 2: call the library\n"
    "Scenario: has no internet connection"
)


async def choose(answer: str | Answer, **fields: Any) -> tuple[pb.ChooseOptionResponse, list[dict[str, Any]]]:
    """Asks once; returns the response and the bodies that the provider got."""
    request = pb.ChooseOptionRequest(**{"decision": LIBRARY, **fields})
    async with OpenAIServer(lambda _: answer) as server, generation_service(server) as service:
        response = await service.authoring.ChooseOption(request)
    return response, server.bodies


async def test_the_naive_prompt_is_this_one_message_after_the_instructions() -> None:
    response, [body] = await choose("Option 1")
    system, question = body["messages"]
    assert system["role"] == "system"
    assert INSTRUCTIONS in system["content"]
    assert system["content"].endswith(
        'Answer in one line, with nothing but "Option 1", "Option 2" or "Either".'
    )
    assert question == {"role": "user", "content": NAIVE + QUESTION}
    assert body["temperature"] == 0
    assert body["max_tokens"] == 2048
    assert "response_format" not in body
    assert response.choice == decision_pb2.CHOICE_OPTION_1
    assert response.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    assert response.text == "Option 1"
    provenance = response.provenance
    assert provenance.name == "llm-author"
    assert provenance.contract == "dramaturg.api.generation.v1.AuthoringService"
    assert {one.name: one.sha256 for one in provenance.prompts} == {
        name: digest(PROMPTS / f"{name}.md") for name in ("choose_option", "decision_naive", "choose_again")
    }
    assert provenance.usage.provider_call_count == len(provenance.completions) == 1
    assert provenance.latency.ToNanoseconds() > 0


async def test_the_story_tells_the_same() -> None:
    response, [body] = await choose("Option 1", prompt=pb.DECISION_PROMPT_STORY)
    told = fenced(
        "There is a person called Doe, who has to find out the library's hours.\n"
        "Doe sees two ways to do that. One is to call the library (Option 1). "
        "The other is to search online (Option 2).\n"
        "As things are, Doe has no internet connection."
    )
    assert body["messages"][-1]["content"] == told + QUESTION
    assert [one.name for one in response.provenance.prompts] == [
        "choose_option",
        "decision_story",
        "choose_again",
    ]


@pytest.mark.parametrize("scenario", ["- Name: Doe\n- Home: far away", "- Name: Doe"])
async def test_the_story_tells_a_profile_in_lines_of_its_own(scenario: str) -> None:
    told = Decision(goal="eat", option_1="cook", option_2="order", scenario=scenario)
    _, [body] = await choose("Option 1", decision=told, prompt=pb.DECISION_PROMPT_STORY)
    lines = scenario.replace("\n", "\n    ")
    assert f"\nThis is known about Doe:\n    {lines}\n[END" in body["messages"][-1]["content"]


async def test_demonstrations_stand_before_it_in_the_same_form() -> None:
    demonstrations = [
        pb.DecisionDemonstration(decision=SHOP, choice=decision_pb2.CHOICE_OPTION_2),
        pb.DecisionDemonstration(decision=LIBRARY, choice=decision_pb2.CHOICE_EITHER),
    ]
    _, [body] = await choose("Either", demonstrations=demonstrations, options_swapped=True)
    shop = fenced(
        "Goal: submit a resume\nOption 1: hand it in\nOption 2: send it\n"
        "Scenario: - Name: Doe\n    Option 1: run"
    )
    assert body["messages"][1:] == [
        {"role": "user", "content": shop + QUESTION},
        {"role": "assistant", "content": "Option 2"},
        {"role": "user", "content": NAIVE + QUESTION},
        {"role": "assistant", "content": "Either"},
        {"role": "user", "content": SWAPPED + QUESTION},
    ]


@pytest.mark.parametrize(
    ("answer", "choice"),
    [
        ("Option 1", decision_pb2.CHOICE_OPTION_2),
        ("2", decision_pb2.CHOICE_OPTION_1),
        ("call the library", decision_pb2.CHOICE_OPTION_1),
        ("Search online.", decision_pb2.CHOICE_OPTION_2),
        ("Either", decision_pb2.CHOICE_EITHER),
    ],
)
async def test_swapped_options_are_answered_in_the_request_s_order(answer: str, choice: Any) -> None:
    response, [body] = await choose(answer, options_swapped=True)
    assert body["messages"][-1]["content"] == SWAPPED + QUESTION
    assert response.choice == choice
    assert response.provenance.parameters["options_swapped"] == "true"


@pytest.mark.parametrize(
    ("answer", "reason", "calls"),
    [
        ("Option 1 or option 2", verdict_pb2.ABSTAIN_REASON_UNPARSABLE, 2),
        ("It depends.", verdict_pb2.ABSTAIN_REASON_UNPARSABLE, 2),
        (Answer("", refusal="No."), verdict_pb2.ABSTAIN_REASON_REFUSED, 1),
        ("I'm sorry, but I can't assist with that.", verdict_pb2.ABSTAIN_REASON_REFUSED, 1),
        # Each of the two requests is repeated with a raised cap.
        (Answer("Option", finish_reason="length"), verdict_pb2.ABSTAIN_REASON_TRUNCATED, 4),
        (Answer(""), verdict_pb2.ABSTAIN_REASON_EMPTY, 2),
    ],
)
async def test_without_a_clear_choice_it_abstains(answer: Any, reason: Any, calls: int) -> None:
    response, bodies = await choose(answer)
    assert (response.choice, response.abstain_reason) == (decision_pb2.CHOICE_UNSPECIFIED, reason)
    assert len(bodies) == len(response.provenance.completions) == calls


async def test_an_explained_choice_is_asked_for_once_more() -> None:
    explained = "Option 1. Option 2 takes much longer."
    answers = iter([explained, "Option 1"])
    async with (
        OpenAIServer(lambda _: Answer(next(answers))) as server,
        generation_service(server) as service,
    ):
        response = await service.authoring.ChooseOption(
            pb.ChooseOptionRequest(decision=LIBRARY, options_swapped=True)
        )
    assert (response.choice, response.text) == (decision_pb2.CHOICE_OPTION_2, "Option 1")
    first, second = server.bodies
    assert second["messages"][:-2] == first["messages"]
    assert second["messages"][-2] == {"role": "assistant", "content": explained}
    assert '"Option 1", "Option 2" or "Either"' in second["messages"][-1]["content"]
    assert len(response.provenance.completions) == 2
    assert {prompt.name for prompt in response.provenance.prompts} >= {"choose_option", "choose_again"}
    assert response.provenance.usage.provider_call_count == 2


async def test_an_explanation_that_is_cut_off_is_asked_for_its_choice() -> None:
    cut = Answer("Doe has no connection, so that the second way", finish_reason="length")
    answers = iter([cut, cut, Answer("Option 1")])
    async with OpenAIServer(lambda _: next(answers)) as server, generation_service(server) as service:
        response = await service.authoring.ChooseOption(pb.ChooseOptionRequest(decision=LIBRARY))
    assert response.choice == decision_pb2.CHOICE_OPTION_1
    assert len(response.provenance.completions) == len(server.bodies) == 3
    assert '"Option 1", "Option 2" or "Either"' in server.bodies[-1]["messages"][-1]["content"]


async def test_a_refusal_after_an_unclear_answer_is_one() -> None:
    answers = iter(["It depends.", "I’m sorry, but I can’t make that choice."])
    async with OpenAIServer(lambda _: Answer(next(answers))) as server, generation_service(server) as service:
        response = await service.authoring.ChooseOption(pb.ChooseOptionRequest(decision=LIBRARY))
    assert response.abstain_reason == verdict_pb2.ABSTAIN_REASON_REFUSED


async def test_model_sampling_and_repeat_are_the_request_s() -> None:
    options = JudgeOptions(
        model="p0/other", sampling=Sampling(temperature=1, max_output_tokens=30), repeat_index=3
    )
    response, [body] = await choose("1", options=options)
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("other", 1, 30)
    assert response.provenance.parameters["repeat_index"] == "3"
    assert response.provenance.parameters["max_output_tokens"] == "30"


async def test_what_the_limits_cannot_say_is_refused_with_its_path() -> None:
    request = pb.ChooseOptionRequest(decision=LIBRARY)
    request.demonstrations.add(decision=SHOP, choice=decision_pb2.CHOICE_OPTION_1)
    request.demonstrations.add(decision=SHOP)
    async with OpenAIServer() as server, generation_service(server) as service:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.authoring.ChooseOption(request)
        assert not server.bodies
    error = from_rpc_error(caught.value)
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in error.violations] == ["demonstrations[1].choice"]


async def test_a_provider_that_fails_is_an_error() -> None:
    async with (
        OpenAIServer(lambda _: Answer("no", status=400)) as server,
        generation_service(server) as service,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.authoring.ChooseOption(pb.ChooseOptionRequest(decision=LIBRARY))
    assert from_rpc_error(caught.value).reason_name == "ERROR_REASON_PROVIDER_REJECTED"
