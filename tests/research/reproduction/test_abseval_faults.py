"""The faults of Table 4 that a model plants: their estimate, their budget, and their gold answers."""

from __future__ import annotations

import pytest

from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.api.evaluation.v1.run_pb2 import Run, RunBudget
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    GOLD_ANSWER_SOURCE_GIVEN,
    GOLD_ANSWER_SOURCE_UNSPECIFIED,
    EvaluateScriptsRequest,
)
from dramaturg.api.generation.v1.authoring_datasets_pb2 import PerturbScriptRequest, PerturbScriptResponse
from dramaturg.client import DramaturgClient
from dramaturg.meta_evaluation.rules import Category
from dramaturg_research.reproduction.abseval.faults import plant_faults
from dramaturg_research.reproduction.session import Estimate, Session
from tests.support.evaluations import gateway_in_a_thread

SCRIPTS = 12
FAULTS = len(Category)
TOKENS = 100
"""The tokens of each call."""
ROWS = [
    EvaluateScriptsRequest(
        task=Task(id=str(number), goal=f"Reach goal {number} online", constraints=["online"]),
        candidates=[
            Candidate(id="a", script=Script(steps=[Step(text=f"Do {number}.{step}.") for step in range(4)]))
        ],
    )
    for number in range(SCRIPTS)
]
GOLD = {str(number): Script(steps=[Step(text=f"Best {number}.")]) for number in range(SCRIPTS - 1)}


async def follow(run_id: str) -> Run:
    raise AssertionError(run_id)


async def author(request: PerturbScriptRequest) -> PerturbScriptResponse:
    assert request.options.model == "faulter"
    if request.category == Category.WRONG_ORDER.number:
        return PerturbScriptResponse(failure="the answer could not be read")
    response = PerturbScriptResponse(script=Script(steps=[*request.script.steps[1:], Step(text="Another.")]))
    response.perturbation.category = request.category
    # The gateway counts the listed calls.
    usage = response.provenance.completions.add(fingerprint=f"{request.task.id}/{request.category}").usage
    usage.prompt_token_count, usage.provider_call_count = TOKENS, 1
    response.provenance.usage.CopyFrom(usage)
    return response


def session(client: DramaturgClient, announced: list[Estimate], budget: RunBudget | None = None) -> Session:
    return Session(
        client,
        "abseval",
        ("m",),
        follow,
        judge_models={"critic": "judge"},
        budget=budget,
        announce=announced.append,
        perturbations=True,
        perturbation_model="faulter",
    )


async def test_a_model_plants_a_fault_of_each_category_and_they_are_judged_by_the_pooled_gold_answer() -> (
    None
):
    announced: list[Estimate] = []
    with gateway_in_a_thread({"author": {"PerturbScript": author}}) as target:
        async with DramaturgClient(target) as client:
            made = await plant_faults(session(client, announced), ROWS, GOLD)
    (estimate,) = announced
    assert estimate.response.model_call_count == SCRIPTS * FAULTS
    # Those of a wrong order could not be made.
    assert len(made.rows) == SCRIPTS * FAULTS
    operations = {(row.tags["perturbation"], row.tags["operation"]) for row in made.rows}
    assert ("missing-steps", "delete-crucial") in operations
    assert ("redundant-steps", "model") in operations
    assert ("none", "none") in operations
    sources = [row.gold_answer_source for row in made.rows]
    assert sources.count(GOLD_ANSWER_SOURCE_GIVEN) == (SCRIPTS - 1) * FAULTS
    assert sources.count(GOLD_ANSWER_SOURCE_UNSPECIFIED) == FAULTS
    assert made.rows[0].gold_answer == GOLD["0"]
    # A row without a synthesizer names none.
    assert [(one.role, one.model) for one in made.rows[0].judges] == [("critic", "judge")]
    assert f"Not made: {SCRIPTS} model/wrong-order, the answer could not be read." in made.notes
    assert any(f"The gold answer of {SCRIPTS - 1} of {SCRIPTS} scripts" in note for note in made.notes)


async def test_the_budget_of_a_run_ends_the_calls_that_plant_faults() -> None:
    asked: list[str] = []

    async def counted(request: PerturbScriptRequest) -> PerturbScriptResponse:
        asked.append(request.task.id)
        return await author(request)

    # Five scripts take 2,500 tokens, so that the third part would go beyond.
    budget = RunBudget(max_token_count=2 * 2500 + 500)
    with gateway_in_a_thread({"author": {"PerturbScript": counted}}) as target:
        async with DramaturgClient(target) as client:
            mine = session(client, [], budget)
            made = await plant_faults(mine, ROWS, GOLD)
    assert len(asked) == 10 * FAULTS
    assert len(made.rows) == 10 * FAULTS
    (part,) = mine.cut_short
    assert part == "perturbations by model: 10 of 12 scripts, the budget of 5,500 tokens is reached"


@pytest.mark.parametrize(("most", "exceeded"), [(0, 0), (SCRIPTS * FAULTS, 0), (SCRIPTS * FAULTS - 1, 1)])
async def test_a_dry_run_estimates_the_calls_and_makes_none(most: int, exceeded: int) -> None:
    async with DramaturgClient("localhost:1") as client:
        mine = session(client, [], RunBudget(max_provider_call_count=most))
        mine.dry_run = True
        made = await plant_faults(mine, ROWS, GOLD)
    ((name, response),) = mine.estimates
    assert (name, response.model_call_count) == ("perturbations by model", SCRIPTS * FAULTS)
    assert len(response.budget_exceeded) == exceeded
    assert len(response.unknown) == 1
    # The judges of as many rows are estimated as there may be.
    assert len(made.rows) == SCRIPTS * (1 + FAULTS)
