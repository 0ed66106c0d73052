"""The view of a decision (Choice-75)."""

from __future__ import annotations

from dramaturg.api.common.v1.decision_pb2 import Choice
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult, ModelChoice
from dramaturg.api.generation.v1.authoring_decisions_pb2 import DecisionPrompt
from dramaturg.report.views.common import abstention, provenances, truncate
from dramaturg.report.views.model import Block, JudgementView, SampleView, SubjectView
from dramaturg.results.names import reason_name


def view(index: int, result: DecisionResult) -> SampleView:
    """The decision and the choice of each model."""
    decision = result.decision
    facts = [("option 1", decision.option_1), ("option 2", decision.option_2)]
    if result.gold:
        facts.append(("gold", _choice(result.gold)))
    return SampleView(
        index=index,
        title=decision.goal,
        sample_id=decision.id,
        facts=facts,
        blocks=[Block("Scenario", text=truncate(decision.scenario), open=True)],
        subjects=[_chosen(choice) for choice in result.choices],
        tags=sorted(result.tags.items()),
    )


def _choice(choice: int) -> str:
    return Choice.Name(Choice.ValueType(choice)).removeprefix("CHOICE_")


def _chosen(choice: ModelChoice) -> SubjectView:
    if choice.abstain_reason:
        judgement = abstention("correct", choice.abstain_reason)
    elif choice.failure_reason:
        failed = "fail" if choice.HasField("correct") else "number"
        judgement = JudgementView("correct", failed, reason_name(choice.failure_reason))
    elif choice.HasField("correct"):
        judgement = JudgementView("correct", "pass" if choice.correct else "fail", _choice(choice.choice))
    else:
        judgement = JudgementView("choice", "number", _choice(choice.choice))
    prompt = DecisionPrompt.Name(choice.prompt).removeprefix("DECISION_PROMPT_").lower()
    return SubjectView(
        title=prompt + (", option 2 shown first" if choice.options_swapped else ""),
        model=choice.model,
        text=truncate(choice.text),
        judgements=[judgement],
        provenances=provenances([choice.provenance]),
    )
