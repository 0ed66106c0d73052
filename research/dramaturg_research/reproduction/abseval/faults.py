"""The scripts with planted faults of Table 4, by rules or by a model, and their gold answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.common.v1.script_pb2 import Script
from dramaturg.api.evaluation.v1.estimate_pb2 import EstimateRunResponse
from dramaturg.api.evaluation.v1.run_pb2 import RunBudget
from dramaturg.api.evaluation.v1.scripts_pb2 import GOLD_ANSWER_SOURCE_GIVEN, EvaluateScriptsRequest
from dramaturg.datasets import Row
from dramaturg.meta_evaluation.rules import BY_MODEL, RULES, Category
from dramaturg_research.ablations.variants import played_roles
from dramaturg_research.perturbations.by_model import DELETE_CRUCIAL, Perturber, inapplicable
from dramaturg_research.perturbations.originals import Original, Originals
from dramaturg_research.perturbations.variants import Skipped, Variant, by_rule
from dramaturg_research.reproduction.session import Estimate, Session, evenly

# Section 4.2: the scripts that each fault is put into.
_PERTURBED = 50
# The scripts whose faults are asked for between two looks at the budget.
_AT_ONCE = 5
_CONCURRENCY, _TIMEOUT = 8, 300.0
_NAME = "perturbations by model"


AGENT_ROLES = ("synthesize", "critic", "execute", "commonsense")
"""The roles of the agents."""


class Faults(NamedTuple):
    """The rows of scripts with faults."""

    rows: Sequence[EvaluateScriptsRequest]
    notes: Sequence[str]
    """How they were made, and what is missing, as sentences."""


def name_judges(row: EvaluateScriptsRequest, session: Session, roles: Sequence[str]) -> None:
    """Names the judges of a row's own mechanism: those of a run would be in all its rows."""
    played = played_roles(row)
    for role in roles:
        if role in played and (model := session.judge_model(role)):
            row.judges.add(role=role, model=model)


async def plant_faults(
    session: Session, released: Sequence[EvaluateScriptsRequest], gold_answers: Mapping[str, Script]
) -> Faults:
    """The rows of some released scripts, each unchanged and with faults.

    By rules there is a fault for each rule that applies, by a model one for each category. The calls of the
    model are announced before they are made, and end at the budget of a run.

    Args:
        session: The models and the budget.
        released: All tasks with their scripts. Faults are put into those within the limit of the session.
        gold_answers: The gold answers of the run by the id of the task. A task without one has one made of
            the judged script.
    """
    originals = Originals.read(Row(line, row) for line, row in enumerate(released, start=1))
    judged = {row.task.id for row in session.selected(released)}
    scripts = [one for one in originals.scripts if one.request.task.id in judged]
    chosen = evenly(scripts, min(_PERTURBED, len(scripts)))
    if session.perturbation_model:
        made, notes = await _by_model(session, chosen)
    else:
        others, vocabulary, skipped = originals.of_other_goals(), originals.vocabulary(), Skipped()
        made = [
            (one, [*by_rule(one, tuple(RULES), others, vocabulary, session.seed, skipped)]) for one in chosen
        ]
        notes = [f"Rules inserted the faults into {len(chosen)} scripts of CoScript."]
    rows, without = [], 0
    for one, variants in made:
        answer = gold_answers.get(one.request.task.id)
        without += answer is None
        for variant in (Variant(one, one.steps), *variants):
            row = variant.row(keep_others=False)
            if answer is not None:
                row.gold_answer_source = GOLD_ANSWER_SOURCE_GIVEN
                row.gold_answer.CopyFrom(answer)
            name_judges(row, session, AGENT_ROLES)
            rows.append(row)
    notes.append(
        f"The gold answer of {len(made) - without} of {len(made)} scripts is that of the run, which pools "
        "the scripts of the models under test; that of the others is made of the judged script alone."
    )
    return Faults(rows, notes)


async def _by_model(
    session: Session, chosen: Sequence[Original]
) -> tuple[list[tuple[Original, list[Variant]]], list[str]]:
    """The faults that a model inserts, and notes on them."""
    asked = [(one, category) for one in chosen for category in Category if not inapplicable(one, category)]
    estimate = Estimate(
        _NAME,
        EstimateRunResponse(
            sample_count=len(chosen),
            model_call_count=len(asked),
            unknown=["the cost of the calls that insert faults"],
            budget_exceeded=_beyond(session.budget, Usage(provider_call_count=len(asked))),
        ),
    )
    if session.dry_run:
        session.estimates.append(estimate)
        # As many rows as there may be faults.
        return [
            (one, [Variant(one, one.steps, category) for other, category in asked if other is one])
            for one in chosen
        ], []
    session.announce(estimate)
    model, spent, skipped = session.perturbation_model, Usage(), Skipped()
    made: list[tuple[Original, list[Variant]]] = []
    for start in range(0, len(chosen), _AT_ONCE):
        if start:
            # The next ones are expected to take as much as the ones before.
            expected = Usage()
            expected.CopyFrom(spent)
            expected.cost_usd += spent.cost_usd * _AT_ONCE / start
            expected.prompt_token_count += spent.prompt_token_count * _AT_ONCE // start
            expected.completion_token_count += spent.completion_token_count * _AT_ONCE // start
            expected.provider_call_count += spent.provider_call_count * _AT_ONCE // start
            if exceeded := _beyond(session.budget, expected):
                session.cut_short.append(f"{_NAME}: {start} of {len(chosen)} scripts, {exceeded[0]}")
                break
        part = chosen[start : start + _AT_ONCE]
        faulty: list[list[Variant]] = [[] for _ in part]
        for operation, categories in (
            (DELETE_CRUCIAL, [Category.MISSING_STEPS]),
            (BY_MODEL, [one for one in Category if one is not Category.MISSING_STEPS]),
        ):
            perturber = Perturber(model, _CONCURRENCY, _TIMEOUT, operation, spent)
            found = await perturber.perturb(session.client.channel, part, categories, skipped)
            faulty = [[*before, *more] for before, more in zip(faulty, found, strict=True)]
        made += zip(part, faulty, strict=True)
    notes = [
        f"{model} inserted the faults into {len(made)} scripts of CoScript; missing steps: {DELETE_CRUCIAL}."
    ]
    notes += [
        f"Not made: {count} {operation}, {why.rstrip('.')}."
        for operation, reasons in skipped.summary().items()
        for why, count in reasons.items()
    ]
    return made, notes


def _beyond(budget: RunBudget | None, usage: Usage) -> Sequence[str]:
    """What a usage exceeds of a budget, as sentences."""
    if budget is None:
        return []
    tokens = usage.prompt_token_count + usage.completion_token_count
    found = []
    if budget.HasField("max_cost_usd") and usage.cost_usd > budget.max_cost_usd:
        found.append(f"the budget of {budget.max_cost_usd:g} USD is reached")
    if budget.max_token_count and tokens > budget.max_token_count:
        found.append(f"the budget of {budget.max_token_count:,} tokens is reached")
    if budget.max_provider_call_count and usage.provider_call_count > budget.max_provider_call_count:
        found.append(f"the budget of {budget.max_provider_call_count:,} calls is reached")
    return found
