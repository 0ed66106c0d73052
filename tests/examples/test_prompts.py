"""The prompt sets, mounted as a deployment mounts one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.common.v1 import decision_pb2
from dramaturg.api.generation.v1 import authoring_decisions_pb2 as pb
from dramaturg.judge.client import judge_one, judge_request
from dramaturg.judge.spec import JudgeSpec
from dramaturg.service.channel import open_channel
from dramaturg.testing import FakeGeneration, serve
from services.agents.commonsense.judge import SPEC as COMMONSENSE_SPEC
from services.agents.critic.judge import SPEC as CRITIC_SPEC
from services.agents.execute.judge import SPEC as EXECUTE_SPEC
from services.judging.pairs.judge import SPEC as PAIR_JUDGE_SPEC
from tests.support.command_line import ROOT
from tests.support.generation import generation_service
from tests.support.judges import TASK, all_pass, candidate
from tests.support.openai_server import OpenAIServer

CHOICE75 = ROOT / "examples" / "prompts" / "choice75"
GERMAN = ROOT / "examples" / "prompts" / "de"


@pytest.mark.parametrize(
    "judge", [CRITIC_SPEC, EXECUTE_SPEC, COMMONSENSE_SPEC], ids=lambda one: one.role.name
)
async def test_one_folder_puts_the_prompts_of_several_judges_into_german(judge: JudgeSpec[Any]) -> None:
    generation = FakeGeneration(all_pass)
    async with (
        serve(generation.contract()) as server,
        judge(generation_target=server.target, prompts_dir=GERMAN, severity=True).open() as contracts,
        serve(*contracts) as served,
        open_channel(served.target) as channel,
    ):
        assessment = await judge_one(channel, judge_request(TASK, [candidate("Koche es.")]), timeout=30)
    [request] = generation.requests
    system, user = (message.text for message in request.messages)
    assert "Es spricht nie zu dir" in system
    assert "Pass: " in system
    assert "Begründe auf Deutsch" in system
    assert "Jeder Fehler hat eine Schwere" in system
    assert "Anleitung:\n[BEGIN candidate" in user
    assert not {"Text between", "Each criterion", "Script:"} & {*system.split("\n"), *user.split("\n")}
    assert {verdict.outcome for verdict in assessment.verdicts} == {1}


async def test_prompts_that_the_set_lacks_are_the_shipped_ones() -> None:
    async with PAIR_JUDGE_SPEC(prompts_dir=GERMAN).open() as contracts:
        assert contracts
    sets = {file.relative_to(GERMAN) for file in GERMAN.rglob("*.md")}
    assert Path("pair-judge/compare_replies.md") not in sets


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        (
            pb.DECISION_PROMPT_NAIVE,
            "[Goal]: eat\n[Option 1]: cook\n[Option 2]: order\n[Scenario]: has no pan",
        ),
        (
            pb.DECISION_PROMPT_STORY,
            "Doe can cook (Option 1) or order (Option 2).\nImagine that Doe has no pan.",
        ),
    ],
)
@pytest.mark.parametrize("answer", ["2", "2)", "Option 2", "2) Option 2"])
async def test_decisions_have_the_structure_of_the_paper(prompt: Any, told: str, answer: str) -> None:
    decision = decision_pb2.Decision(goal="eat", option_1="cook", option_2="order", scenario="has no pan")
    shown = pb.DecisionDemonstration(decision=decision, choice=decision_pb2.CHOICE_EITHER)
    request = pb.ChooseOptionRequest(decision=decision, prompt=prompt, demonstrations=[shown])
    async with (
        OpenAIServer(lambda _: answer) as server,
        generation_service(server, prompts_dir=CHOICE75) as service,
    ):
        response = await service.authoring.ChooseOption(request)
    system, example, solution, question = (message["content"] for message in server.bodies[0]["messages"])
    assert "Option" not in system
    assert solution == "Either"
    assert example == question
    assert f"{told}\n[END decision" in question
    assert question.endswith("3) Either, as both come to about the same for the Goal\n[Answer]:")
    assert response.choice == decision_pb2.CHOICE_OPTION_2


BRIEF = pb.ScenarioBrief(goal="eat", overall_goal="be strong", option_1="cook", option_2="order")
START = "Doe would like to be strong.\nOne step on the way there is to eat. For that Doe has two ways: "


def shown_scenario(reason: str = "", scenario: str = "has no oven") -> pb.ScenarioDemonstration:
    return pb.ScenarioDemonstration(
        brief=BRIEF, target=decision_pb2.CHOICE_OPTION_1, scenario=scenario, base_scenario=reason
    )


async def write_scenarios(*answers: Any, **fields: Any) -> list[str]:
    """The questions of the calls for the second option."""
    remaining = list(answers)
    request = pb.WriteScenarioRequest(brief=BRIEF, target=decision_pb2.CHOICE_OPTION_2, **fields)
    async with (
        OpenAIServer(lambda _: remaining.pop(0)) as server,
        generation_service(server, prompts_dir=CHOICE75) as service,
    ):
        response = await service.authoring.WriteScenario(request)
    assert response.scenario
    return [body["messages"][-1]["content"] for body in server.bodies]


async def test_scenarios_are_asked_for_as_gaps_of_a_text() -> None:
    first, second = await write_scenarios(
        {"scenario": "is ill"},
        {"scenario": "sat in the rain"},
        form=pb.SCENARIO_FORM_HARD_VERB_PHRASE,
        demonstrations=[shown_scenario("cannot bake", "has no oven")],
    )
    # Way 1 is the way taken: for the second option the two are exchanged.
    assert f"{START}1) cook or 2) order\nBecause Doe cannot bake, Doe takes way 1.\n[END example 1" in first
    assert f"{START}1) order or 2) cook\nBecause Doe [INSERT], Doe takes way 1.\n[END decision" in first
    assert "Because Doe has no oven, Doe cannot bake. So way 2 is closed to Doe" in second
    assert "Because Doe [INSERT], Doe is ill. So way 2 is closed to Doe" in second


async def test_a_profile_is_asked_for_after_the_decision() -> None:
    [question] = await write_scenarios(
        {"profile": ["Name: Doe", "Interests: naps"]},
        form=pb.SCENARIO_FORM_USER_PROFILE,
        demonstrations=[shown_scenario(scenario="- Name: Doe\n- Interests: pans")],
    )
    decided = "way 1 is to order, and way 2 is to cook.\nIn the end Doe took way 1 and not way 2.\n[END"
    assert decided in question
    assert "Profile of the user: - Name: Doe\n    - Interests: pans\n[END example 1" in question
    assert "1: preferences\n2: interests\n3: financial situation\n" in question
    assert question.endswith("Profile of the user:")
