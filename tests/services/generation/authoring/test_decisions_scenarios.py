"""AuthoringService.WriteScenario over real gRPC."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import decision_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling
from dramaturg.api.generation.v1 import authoring_decisions_pb2 as pb
from dramaturg.service.errors import from_rpc_error
from tests.support.generation import generation_service
from tests.support.openai_server import Answer, Body, OpenAIServer

BRIEF = pb.ScenarioBrief(
    goal="find out the library's hours",
    overall_goal="borrow a book",
    option_1="call the library",
    option_2="search online",
)
TAKEN_1 = (
    "Overall goal: borrow a book\nGoal: find out the library's hours\n"
    "Way taken: call the library\nWay left: search online\n"
)
TAKEN_2 = (
    "Overall goal: borrow a book\nGoal: find out the library's hours\n"
    "Way taken: search online\nWay left: call the library\n"
)


def phrase(text: str) -> Body:
    return {"idea": "Something.", "scenario": text}


def request(**fields: Any) -> pb.WriteScenarioRequest:
    return pb.WriteScenarioRequest(**{"brief": BRIEF, "target": decision_pb2.CHOICE_OPTION_1, **fields})


async def write(*answers: Any, **fields: Any) -> tuple[pb.WriteScenarioResponse, list[Body]]:
    """Writes once; the answers come in turn, the last for good."""
    remaining = list(answers)

    def respond(_: Body) -> Any:
        return remaining.pop(0) if len(remaining) > 1 else remaining[0]

    async with OpenAIServer(respond) as server, generation_service(server) as service:
        response = await service.authoring.WriteScenario(request(**fields))
    return response, server.bodies


def shown(body: Body) -> str:
    return str(body["messages"][-1]["content"])


async def test_a_verb_phrase_takes_one_call() -> None:
    response, [body] = await write(phrase(" has no internet\nconnection. "))
    assert response.scenario == "has no internet connection"
    assert (response.base_scenario, response.failure, response.leaks_option) == ("", "", False)
    assert f"\n{TAKEN_1}[END decision" in shown(body)
    assert "Examples:" not in shown(body)
    assert body["temperature"] == 0.75
    assert response.provenance.parameters == {"temperature": "0.75"}
    assert [prompt.name for prompt in response.provenance.prompts] == ["write_scenario", "scenario_decision"]


@pytest.mark.parametrize("form", [pb.SCENARIO_FORM_VERB_PHRASE, pb.SCENARIO_FORM_USER_PROFILE])
async def test_for_the_second_option_the_two_are_exchanged(form: Any) -> None:
    answer = phrase("has a sore throat")
    if form == pb.SCENARIO_FORM_USER_PROFILE:
        answer = {"idea": "It hurts.", "profile": ["Health: a sore throat"]}
    _, [second] = await write(answer, form=form, target=decision_pb2.CHOICE_OPTION_2)
    exchanged = pb.ScenarioBrief(
        goal=BRIEF.goal, overall_goal=BRIEF.overall_goal, option_1=BRIEF.option_2, option_2=BRIEF.option_1
    )
    _, [first] = await write(answer, form=form, brief=exchanged)
    assert f"\n{TAKEN_2}[END decision" in shown(second)
    assert first == second


async def test_a_hard_verb_phrase_takes_a_second_call_that_starts_from_the_first() -> None:
    demonstration = pb.ScenarioDemonstration(
        brief=BRIEF,
        target=decision_pb2.CHOICE_OPTION_2,
        scenario="is up at 3 am",
        base_scenario="finds the library closed",
    )
    response, [first, second] = await write(
        phrase("cannot go online"),
        phrase("has not paid the bills"),
        form=pb.SCENARIO_FORM_HARD_VERB_PHRASE,
        demonstrations=[demonstration],
    )
    assert (response.scenario, response.base_scenario) == ("has not paid the bills", "cannot go online")
    assert f"{TAKEN_2}Scenario: finds the library closed\n" in shown(first)
    assert "is up at 3 am" not in shown(first)
    assert f"{TAKEN_2}Reason: finds the library closed\nScenario: is up at 3 am\n" in shown(second)
    assert f"\n{TAKEN_1}Reason: cannot go online\n[END decision" in shown(second)
    provenance = response.provenance
    assert [prompt.name for prompt in provenance.prompts] == [
        *("write_scenario", "scenario_decision"),
        *("write_scenario_behind", "scenario_decision_behind"),
    ]
    assert provenance.usage.provider_call_count == len(provenance.completions) == 2


async def test_a_hard_verb_phrase_differs_from_the_one_it_leads_to() -> None:
    response, bodies = await write(
        phrase("cannot go online"), phrase("Cannot go online."), form=pb.SCENARIO_FORM_HARD_VERB_PHRASE
    )
    assert (response.scenario, len(bodies)) == ("", 2)
    assert "the scenario is the one that it must lead to" in response.failure


@pytest.mark.parametrize("failing", [0, 1])
async def test_a_hard_verb_phrase_needs_both_calls(failing: int) -> None:
    answers: list[Any] = [phrase("cannot go online"), phrase("has not paid")]
    answers[failing] = Answer("", refusal="No.")
    response, bodies = await write(*answers, form=pb.SCENARIO_FORM_HARD_VERB_PHRASE)
    assert (response.scenario, response.failure) == ("", "The model declined to answer: No.")
    assert response.base_scenario == ("cannot go online" if failing else "")
    assert len(bodies) == len(response.provenance.completions) == failing + 1


async def test_a_profile_is_a_list_with_musts_and_must_nots() -> None:
    response, [body] = await write(
        {"idea": "She is shy.", "profile": ["Name: Doe", " ", "- Interests: history"]},
        form=pb.SCENARIO_FORM_USER_PROFILE,
        must_nots=["telephones"],
    )
    assert response.scenario == "- Name: Doe\n- Interests: history"
    assert "1: preferences\n2: interests\n3: financial situation\n" in shown(body)
    assert "1: call the library\n2: search online\n3: telephones\n" in shown(body)
    _, [body] = await write(
        {"idea": "", "profile": ["Name: Doe"]}, form=pb.SCENARIO_FORM_USER_PROFILE, musts=["age"]
    )
    assert "]\n1: age\n[END musts" in shown(body)


@pytest.mark.parametrize("scenario", ["wants to call the library", "prefers searching online"])
async def test_a_scenario_that_names_either_option_is_marked(scenario: str) -> None:
    response, _ = await write(phrase(scenario))
    assert response.leaks_option
    assert response.scenario == scenario


@pytest.mark.parametrize(
    ("answers", "failure", "calls"),
    [
        ([Answer("", refusal="No.")], "declined", 1),
        ([Answer("{", finish_reason="length")], "cut off", 2),
        (["no JSON at all"], "could not be read", 2),
        ([{"idea": "", "scenario": "  "}], "no scenario", 1),
    ],
)
async def test_an_answer_of_no_use_is_a_failure(answers: list[Any], failure: str, calls: int) -> None:
    response, bodies = await write(*answers)
    assert response.scenario == ""
    assert not response.leaks_option
    assert failure in response.failure
    assert len(bodies) == len(response.provenance.completions) == calls


async def test_one_repair_is_asked_for() -> None:
    response, bodies = await write("has no internet", phrase("has no internet"))
    assert response.scenario == "has no internet"
    assert len(bodies) == 2
    assert json.loads(response.provenance.completions[1].raw_text)["scenario"] == "has no internet"


async def test_a_set_temperature_stands() -> None:
    options = JudgeOptions(sampling=Sampling(temperature=0))
    _, [body] = await write(phrase("waits"), options=options)
    assert body["temperature"] == 0


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"target": decision_pb2.CHOICE_EITHER}, "target"),
        ({"target": decision_pb2.CHOICE_UNSPECIFIED}, "target"),
        ({"form": 7}, "form"),
        ({"musts": ["age"]}, "musts"),
        ({"must_nots": ["age"], "form": pb.SCENARIO_FORM_HARD_VERB_PHRASE}, "must_nots"),
        (
            {"demonstrations": [pb.ScenarioDemonstration(brief=BRIEF, scenario="x")]},
            "demonstrations[0].target",
        ),
        (
            {
                "form": pb.SCENARIO_FORM_HARD_VERB_PHRASE,
                "demonstrations": [
                    pb.ScenarioDemonstration(brief=BRIEF, scenario="x", target=decision_pb2.CHOICE_OPTION_1)
                ],
            },
            "demonstrations[0].base_scenario",
        ),
    ],
)
async def test_what_the_limits_cannot_say_is_refused(fields: dict[str, Any], path: str) -> None:
    async with OpenAIServer() as server, generation_service(server) as service:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.authoring.WriteScenario(request(**fields))
        assert not server.bodies
    assert [violation.field for violation in from_rpc_error(caught.value).violations] == [path]
