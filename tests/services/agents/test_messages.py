"""The exact messages that the agents send."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from dramaturg.api.common.v1.script_pb2 import Candidate, Edge, Script, Step, Task
from dramaturg.api.generation.v1 import generation_service_pb2
from dramaturg.judge import answers, criteria
from dramaturg.judge.answers import VerdictsForm
from dramaturg.judge.shapes import Text
from tests.services.agents.conftest import AGENTS, Agents
from tests.support.judges import STEPS, TASK, candidate, script

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = script("Boil water.", "Brew the tea.")


def fenced(label: str, *lines: str) -> str:
    """A fence, made by other means than the service's."""
    content = "\n".join(lines)
    marker = hashlib.sha256(f"{label}\n{content}".encode()).hexdigest()[:8]
    return f"[BEGIN {label} {marker}]\n{content}\n[END {label} {marker}]"


def section(file: str, heading: str) -> str:
    """A section of a prompt file, read by other means than the service's."""
    text = (ROOT / file).read_text(encoding="utf-8")
    found = re.search(rf"^# {heading}\n\n(.*?)(?=\n+# |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found
    return found[1].strip()


def shared(file: str, heading: str) -> str:
    return section(f"dramaturg/judge/shared_prompts/{file}.md", heading)


async def test_the_critic_sends_these_messages(agents: Agents) -> None:
    await agents.ask("critic", candidate("Heat it.", "Drink it."), reference=REFERENCE)
    [request] = agents.generation.requests
    assert [message.role for message in request.messages] == [
        generation_service_pb2.MESSAGE_ROLE_SYSTEM,
        generation_service_pb2.MESSAGE_ROLE_USER,
    ]
    shown = request.messages[1].text
    expected = [
        "Goal:\n" + fenced("goal", "Make a cup of tea"),
        "Constraints:\n"
        + fenced("constraints", "Constraint 1: without a kettle", "Constraint 2: in five minutes"),
        "Reference:\n" + fenced("reference", "Step 1: Boil water.", "Step 2: Brew the tea."),
        "Script:\n" + fenced("candidate", "Step 1: Heat it.", "Step 2: Drink it."),
        "Judge this script.",
    ]
    assert shown == "\n\n".join(expected)
    definitions = [f"{one}: {shared('criteria', f'part {one}')}" for one in criteria.ABSEVAL[:3]]
    reasoning = {
        "comparison": Text("what each step does: 1: ..., 2: ..., 3: ..., then what the reference has besides")
    }
    form = VerdictsForm.of(
        criteria.ABSEVAL[:3], step_count=2, constraints=TASK.constraints, reasoning=reasoning
    )
    system = section("services/agents/critic/prompts/critique.md", "system")
    system = system.replace("{{> guard}}", shared("guard", "text"))
    system = system.replace("{{> judging}}", shared("judging", "text"))
    system = system.replace("{{criteria}}", "\n\n".join(definitions))
    assert request.messages[0].text == system.replace("{{answer}}", answers.instruction(form))


@pytest.mark.parametrize("agent", AGENTS)
async def test_the_system_message_is_the_same_for_all_scripts_and_goals(agent: str, agents: Agents) -> None:
    await agents.ask(agent, candidate("Heat it."), reference=REFERENCE)
    other = Task(goal="Repair a bicycle tyre", constraints=["by hand", "outside", "at night"])
    await agents.ask(agent, candidate("Look for the hole.", "Patch it."), task=other, reference=REFERENCE)
    first, second = (request.messages for request in agents.generation.requests)
    assert first[0] == second[0]
    assert first[1] != second[1]


@pytest.mark.parametrize("agent", AGENTS)
async def test_scripts_of_one_task_differ_only_at_the_end_of_the_prompt(agent: str, agents: Agents) -> None:
    for step in ("Heat it.", "Cool it."):
        await agents.ask(agent, candidate(step), reference=REFERENCE)
    first, second = (request.messages[1].text for request in agents.generation.requests)
    begin = first.index("Script:\n[BEGIN candidate")
    assert first[:begin] == second[:begin]
    assert "[BEGIN" not in first[begin:].replace("[BEGIN candidate", "", 1)


async def test_without_a_reference_the_critic_asks_another_question(agents: Agents) -> None:
    for reference in (None, Script()):
        assessment = await agents.ask("critic", candidate("Heat it."), reference=reference)
        assert [prompt.name for prompt in assessment.provenance.prompts] == ["critique_alone"]
        assert "eference" not in "".join(agents.generation.messages)


@pytest.mark.parametrize("agent", ["execute", "commonsense"])
async def test_only_the_critic_is_shown_the_reference(agent: str, agents: Agents) -> None:
    await agents.ask(agent, candidate("Heat it."), reference=REFERENCE)
    assert "Brew the tea." not in "".join(agents.generation.messages)


@pytest.mark.parametrize("agent", AGENTS)
async def test_equal_questions_make_equal_requests(agent: str, agents: Agents) -> None:
    await agents.ask(agent, candidate("Heat it.", id="a", model="some-model"))
    await agents.ask(agent, candidate("Heat it.", id="b", model="another-model"))
    first, second = agents.generation.requests
    assert first == second


@pytest.mark.parametrize("agent", AGENTS)
async def test_who_wrote_it_is_never_shown(agent: str, agents: Agents) -> None:
    others = (candidate("Wait.", id="other-id", model="other-model"),)
    await agents.ask(agent, candidate("Heat it.", id="this-id", model="this-model"), pool=others)
    shown = "".join(agents.generation.messages)
    assert not any(name in shown for name in ("this-id", "this-model", "other-id", "other-model"))


async def test_what_stands_around_the_steps_of_a_text_is_shown_beside_them(agents: Agents) -> None:
    text = "You need a pot.\n\n1. Heat it.\n2. Drink it.\n\nIt is hot."
    await agents.ask("commonsense", Candidate(id="a", text=text))
    shown = agents.generation.messages[-1]
    assert re.search(
        r"\[BEGIN text before the steps (\w+)\]\nYou need a pot\.\n\[END text before the steps \1\]", shown
    )
    assert re.search(
        r"\[BEGIN text after the steps (\w+)\]\nIt is hot\.\n\[END text after the steps \1\]", shown
    )


async def test_a_partial_order_is_shown(agents: Agents) -> None:
    partial = Script(steps=[Step(text="Heat it."), Step(text="Find a cup.")], edges=[Edge(target_index=1)])
    await agents.ask("execute", Candidate(id="a", script=partial))
    assert "]\nstep 1 before step 2\n[END order of the steps" in agents.generation.messages[-1]


async def test_without_constraints_there_is_no_question_of_them(agents: Agents) -> None:
    await agents.ask("execute", candidate(*STEPS), task=Task(goal="Make tea"))
    assert "Constraints:" not in agents.generation.messages[-1]
    assert "satisfies_constraints" not in "".join(agents.generation.messages)
    assert "satisfies_constraints" not in agents.generation.requests[-1].json_format.schema


async def test_a_deployment_s_prompt_is_used_and_named(agents: Agents, tmp_path: Path) -> None:
    text = "# user\n{{goal}} {{constraints}} {{candidate}} {{criteria}} {{answer}} In our words.\n"
    text += "# part completes_goal\nIs it so?\n"
    (tmp_path / "execute.md").write_text(text, encoding="utf-8")
    ours = await agents.ask("execute", candidate(*STEPS))
    theirs = await agents.ask("execute", candidate(*STEPS), prompts_dir=tmp_path)
    assert agents.generation.messages[-1].endswith("In our words.")
    assert "completes_goal: Is it so?\n" in agents.generation.messages[-1]
    assert shared("criteria", "part order_correct") in agents.generation.messages[-1]
    assert ours.provenance.prompts[0].sha256 != theirs.provenance.prompts[0].sha256


async def test_the_model_of_the_settings_is_asked_for(agents: Agents) -> None:
    await agents.ask("critic", candidate(*STEPS), model="p/m", max_output_tokens=123)
    [request] = agents.generation.requests
    assert (request.model, request.sampling.max_output_tokens) == ("p/m", 123)
    assert request.messages[0].text.startswith("You review how-to scripts")
    assert TASK.goal in request.messages[1].text
