"""AuthoringService.PerturbScript over real gRPC: a model names edits, and just these are made."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.common.v1.script_pb2 import Edge, Script, Step, Task
from dramaturg.api.generation.v1 import authoring_datasets_pb2 as pb
from dramaturg.judge.answers import UnclearAnswerError
from dramaturg.meta_evaluation.rules import find_changes
from dramaturg.service.errors import from_rpc_error
from services.generation.authoring.scripts import Action, EditsForm
from tests.support.generation import generation_service
from tests.support.openai_server import Answer, Body, OpenAIServer
from tests.support.step_changes import apply_changes, read_change, revert_changes

TASK = Task(goal="Make tea without a kettle", constraints=["without a kettle"])
STEPS = ["Boil water in a pot.", "Put tea in a cup.", "Pour.", "Wait."]
MISSING, REDUNDANT = pb.PERTURBATION_CATEGORY_MISSING_STEPS, pb.PERTURBATION_CATEGORY_REDUNDANT_STEPS
CONSTRAINT, ORDER = pb.PERTURBATION_CATEGORY_BROKEN_CONSTRAINT, pb.PERTURBATION_CATEGORY_WRONG_ORDER


def edit(action: str, step: int, text: str = "", place_after: int = 0) -> Body:
    return {"action": action, "step": step, "place_after": place_after, "text": text}


def edits(*listed: Body) -> Body:
    return {"idea": "It  breaks.", "edits": list(listed)}


def script(*texts: str) -> Script:
    return Script(steps=[Step(text=text) for text in texts])


async def perturb(
    answer: Any, category: Any = MISSING, **fields: Any
) -> tuple[pb.PerturbScriptResponse, list[Body]]:
    request = pb.PerturbScriptRequest(
        **{"task": TASK, "script": script(*STEPS), "category": category, **fields}
    )
    async with OpenAIServer(lambda _: answer) as server, generation_service(server) as service:
        response = await service.authoring.PerturbScript(request)
    return response, server.bodies


@pytest.mark.parametrize(
    ("category", "answer", "steps"),
    [
        (MISSING, edits(edit("remove", 3)), [*STEPS[:2], STEPS[3]]),
        (REDUNDANT, edits(edit("insert", 0, "Check the\noil.")), ["Check the oil.", *STEPS]),
        (CONSTRAINT, edits(edit("replace", 1, "Use a kettle.")), ["Use a kettle.", *STEPS[1:]]),
        (ORDER, edits(edit("move", 1, place_after=4)), [*STEPS[1:], STEPS[0]]),
        (ORDER, edits(edit("move", 4)), [STEPS[3], *STEPS[:3]]),
    ],
)
async def test_just_what_the_model_names_is_changed(category: Any, answer: Body, steps: list[str]) -> None:
    response, [body] = await perturb(answer, category)
    assert [step.text for step in response.script.steps] == steps
    assert response.failure == ""
    made = response.perturbation
    assert (made.category, made.operation, made.intent) == (category, "model", "It breaks.")
    assert len(made.changes) == 1
    assert revert_changes(steps, [read_change(change) for change in made.changes]) == STEPS
    question = body["messages"][-1]["content"]
    assert "Step 3: Pour." in question
    assert "Constraint 1: without a kettle" in question
    assert f"- {answer['edits'][0]['action']}: " in question
    assert [prompt.name for prompt in response.provenance.prompts] == ["perturb_script"]


async def test_each_category_is_asked_for_in_its_own_words() -> None:
    asked = set()
    for name in ("remove", "insert", "move"):
        category = {"remove": MISSING, "insert": REDUNDANT, "move": ORDER}[name]
        response, [body] = await perturb(edits(edit(name, 1, "New.", place_after=2)), category)
        assert response.failure == ""
        asked.add(body["messages"][-1]["content"])
        allowed = body["response_format"]["json_schema"]["schema"]["properties"]["edits"]
        assert allowed["items"]["properties"]["action"]["enum"] == [name]
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (edits(), "names no edits"),
        (edits(edit("remove", 5)), "no step 5"),
        (edits(edit("remove", 0)), "no step 0"),
        (edits(edit("remove", True)), "True is not"),
        (edits(edit("remove", 1), edit("remove", 1)), "edited twice"),
        (edits(*(edit("remove", number) for number in range(1, 5))), "leave no step"),
        (edits(edit("insert", 1, "New.")), "could not be"),
        (Answer("", refusal="No."), "declined"),
    ],
)
async def test_edits_that_cannot_be_made_are_a_failure(answer: Any, failure: str) -> None:
    response, _ = await perturb(answer)
    assert failure in response.failure
    assert not response.HasField("script")
    assert not response.HasField("perturbation")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"category": 0}, "category"),
        ({"script": script("One.")}, "script.steps"),
        ({"script": script("One.", " ")}, "script.steps[1].text"),
        (
            {"script": Script(steps=[Step(text="a"), Step(text="b")], edges=[Edge(target_index=1)])},
            "script.edges",
        ),
        ({"task": Task(goal="Make tea"), "category": CONSTRAINT}, "task.constraints"),
    ],
)
async def test_bad_requests_name_the_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await perturb(edits(), **fields)
    error = from_rpc_error(caught.value)
    assert error.code == grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in error.violations] == [field]


entries = st.builds(
    edit,
    st.sampled_from([*map(str, Action), "burn"]),
    st.integers(-1, 6),
    st.text(max_size=5),
    st.integers(-1, 6),
)


@given(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=5), st.lists(entries, max_size=4))
def test_whatever_a_model_names_is_carried_out_in_full_or_refused(
    original: list[str], named: list[Body]
) -> None:
    try:
        placed, _ = EditsForm(original, tuple(Action)).parse(edits(*named))
    except UnclearAnswerError:
        return
    changes = find_changes(original, placed)
    steps = [step.text for step in placed]
    assert apply_changes(original, changes) == steps
    assert revert_changes(steps, changes) == original
    removed = sum(one["action"] == "remove" for one in named)
    inserted = sum(one["action"] == "insert" for one in named)
    assert len(steps) == len(original) - removed + inserted
