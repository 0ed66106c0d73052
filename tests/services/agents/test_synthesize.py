from __future__ import annotations

import random
import re

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate, Task
from dramaturg.api.generation.v1 import generation_service_pb2
from dramaturg.api.generation.v1.generation_service_pb2 import Completion, GenerateRequest
from dramaturg.service.errors import ServiceError, from_rpc_error
from dramaturg.testing import completion
from tests.services.agents.conftest import Agents
from tests.support.judges import STEPS, TASK, candidate

POOL = [
    candidate(f"Heat {n} cups of water.", "Drink it.", id=f"c{n:02}", model=f"model-{n}") for n in range(40)
]


def examples(agents: Agents) -> list[str]:
    """The examples shown, in order."""
    found = re.findall(
        r"^\[BEGIN (example \d+) (\w+)\]\n(.*?)\n\[END \1 \2\]$",
        agents.generation.messages[-1],
        re.DOTALL | re.MULTILINE,
    )
    assert [name for name, _, _ in found] == [f"example {n}" for n in range(1, len(found) + 1)]
    return [text for _, _, text in found]


async def test_writes_a_script_from_forty_candidates(agents: Agents) -> None:
    response = await agents.synthesize(*POOL)
    assert tuple(step.text for step in response.script.steps) == STEPS
    assert response.failure == ""
    assert list(response.pool_ids) == [one.id for one in POOL]
    assert len(examples(agents)) == 40
    assert response.provenance.name == "llm-synthesize"
    assert [prompt.name for prompt in response.provenance.prompts] == ["synthesize"]
    assert response.provenance.usage.prompt_token_count == 10


async def test_the_order_of_the_pool_does_not_change_the_request(agents: Agents) -> None:
    shuffled = random.Random(7).sample(POOL, len(POOL))
    await agents.synthesize(*POOL)
    await agents.synthesize(*shuffled)
    first, second = agents.generation.requests
    assert first == second


async def test_who_wrote_a_candidate_is_not_shown(agents: Agents) -> None:
    await agents.synthesize(*POOL)
    shown = "".join(agents.generation.messages)
    assert "model-" not in shown
    assert not re.search(r"\bc\d\d\b", shown)


async def test_equal_candidates_are_shown_once_and_all_named(agents: Agents) -> None:
    text = Candidate(id="z", text="1. Heat it.\n2. Drink it.")
    response = await agents.synthesize(
        candidate("Heat it.", "Drink it.", id="b"), text, candidate("Wait.", id="a")
    )
    assert sorted(examples(agents)) == ["Step 1: Heat it.\nStep 2: Drink it.", "Step 1: Wait."]
    assert list(response.pool_ids) == ["a", "b", "z"]


async def test_empty_candidates_are_left_out(agents: Agents) -> None:
    response = await agents.synthesize(
        candidate("Heat it.", id="b"), Candidate(id="a"), Candidate(id="c", text=" ")
    )
    assert list(response.pool_ids) == ["b"]
    assert examples(agents) == ["Step 1: Heat it."]


async def test_a_candidate_without_steps_is_learned_from_as_text(agents: Agents) -> None:
    await agents.synthesize(Candidate(id="a", text="Just heat it and drink it."))
    assert examples(agents) == ["Just heat it and drink it."]


async def test_without_a_pool_the_script_is_written_from_the_task(agents: Agents) -> None:
    for pool in ([], [Candidate(id="a")]):
        response = await agents.synthesize(*pool)
        assert [step.text for step in response.script.steps] == list(STEPS)
        assert list(response.pool_ids) == []
        assert [prompt.name for prompt in response.provenance.prompts] == ["synthesize_alone"]
        assert "xample" not in "".join(agents.generation.messages)


async def test_a_pool_that_is_too_long_is_cut_and_says_so(agents: Agents) -> None:
    long = [candidate(letter * 400, id=letter) for letter in "abcd"]
    response = await agents.synthesize(*long, excerpts={"pool": 1000})
    assert len(response.pool_ids) == 2
    shown = {example.removeprefix("Step 1: ") for example in examples(agents)}
    assert shown == {letter * 400 for letter in response.pool_ids}


async def test_a_candidate_that_is_too_long_alone_is_cut_visibly(agents: Agents) -> None:
    response = await agents.synthesize(candidate("x" * 10_000, id="a"), excerpts={"pool": 1000})
    assert list(response.pool_ids) == ["a"]
    assert response.provenance.parameters["example_1.shown"] == "1000 of 10000 characters"
    assert "[cut here: 9000 more characters]" in agents.generation.messages[-1]


async def test_the_task_is_fenced(agents: Agents) -> None:
    await agents.synthesize(task=Task(goal="泡茶", constraints=["不用水壶"]))
    shown = agents.generation.messages[-1]
    assert re.search(r"\[BEGIN goal (\w+)\]\n泡茶\n\[END goal \1\]", shown)
    assert re.search(r"\[BEGIN constraints (\w+)\]\nConstraint 1: 不用水壶\n\[END constraints \1\]", shown)
    assert TASK.goal not in shown


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (completion({}, status=generation_service_pb2.COMPLETION_STATUS_REFUSED, json=None), "declined"),
        (completion({}, status=generation_service_pb2.COMPLETION_STATUS_TRUNCATED, json=None), "cut off"),
        (completion({"considerations": "", "steps": []}), "no steps"),
        (completion({"considerations": "", "steps": [" "]}), "no steps"),
    ],
)
async def test_an_answer_that_is_no_script_says_why(reply: Completion, why: str, agents: Agents) -> None:
    agents.generation.reply = lambda _: reply
    response = await agents.synthesize(*POOL[:2])
    assert not response.script.steps
    assert why in response.failure
    assert list(response.pool_ids) == ["c00", "c01"]
    assert response.provenance.completions


async def test_numbers_that_the_model_wrote_are_no_part_of_the_steps(agents: Agents) -> None:
    agents.generation.reply = lambda _: completion(
        {"considerations": "", "steps": ["1. Heat it.", "2. Drink it."]}
    )
    response = await agents.synthesize()
    assert [step.text for step in response.script.steps] == ["Heat it.", "Drink it."]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, error_reason_pb2.ERROR_REASON_BUDGET_EXHAUSTED),
        (grpc.StatusCode.NOT_FOUND, error_reason_pb2.ERROR_REASON_COMPLETION_NOT_RECORDED),
    ],
)
async def test_a_model_that_cannot_be_asked_is_an_error(
    code: grpc.StatusCode, reason: error_reason_pb2.ErrorReason.ValueType, agents: Agents
) -> None:
    def reply(request: GenerateRequest) -> Completion:
        raise ServiceError(code, reason, "No.")

    agents.generation.reply = reply
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await agents.synthesize(*POOL[:2])
    assert from_rpc_error(caught.value).reason == reason
