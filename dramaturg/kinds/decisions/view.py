"""The view of a decision (Choice-75)."""

from __future__ import annotations

from dramaturg.api.common.v1.decision_pb2 import Choice
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult, ModelChoice
from dramaturg.api.generation.v1.authoring_decisions_pb2 import DecisionPrompt
from dramaturg.kinds.decisions import variant_name
from dramaturg.report.sample_view import Block, JudgementView, SampleView, SubjectView
from dramaturg.report.views import abstention, provenances, truncate
from dramaturg.results.names import reason_name, value_name
from dramaturg.tables.model import words


def view(index: int, result: DecisionResult) -> SampleView:
    """The decision and the choice of each model."""
    decision = result.decision
    facts = [("option 1", decision.option_1), ("option 2", decision.option_2)]
    if result.gold:
        facts.append(("right choice", words(value_name(Choice, result.gold))))
    return SampleView(
        index=index,
        title=decision.goal,
        sample_id=decision.id,
        facts=facts,
        blocks=[Block("Scenario", text=truncate(decision.scenario), open=True)],
        subjects=[_chosen(choice) for choice in result.choices],
        tags=sorted(result.tags.items()),
        disagreement=_disagreement(result),
    )


def _disagreement(result: DecisionResult) -> str:
    """Whether models, prompts or orders chose different options."""
    chosen = {
        choice.choice for choice in result.choices if not choice.abstain_reason and not choice.failure_reason
    }
    return "choices differ" if len(chosen) > 1 else ""


def _chosen(choice: ModelChoice) -> SubjectView:
    prompt = value_name(DecisionPrompt, choice.prompt).lower()
    measure = f"correct/{variant_name(choice)}"
    if choice.abstain_reason:
        judgement = abstention(measure, choice.abstain_reason)
    elif choice.failure_reason:
        failed = "fail" if choice.HasField("correct") else "number"
        judgement = JudgementView(measure, failed, reason_name(choice.failure_reason))
    elif choice.HasField("correct"):
        judgement = JudgementView(
            measure, "pass" if choice.correct else "fail", value_name(Choice, choice.choice)
        )
    else:
        judgement = JudgementView(measure, "number", value_name(Choice, choice.choice))
    return SubjectView(
        title=prompt + (", option 2 shown first" if choice.options_swapped else ""),
        model=choice.model,
        text=truncate(choice.text),
        judgements=[judgement],
        provenances=provenances([choice.provenance]),
    )
