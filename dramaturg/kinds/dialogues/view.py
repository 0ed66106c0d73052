"""The view of a dialogue (SimulBench)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    DialogueResult,
    ModelReply,
    ReplyComparison,
    ScriptSubset,
)
from dramaturg.api.judging.v1 import pair_judge_service_pb2
from dramaturg.api.judging.v1.pair_judge_service_pb2 import Preference
from dramaturg.report.sample_view import Block, JudgementView, SampleView, StepView, SubjectView
from dramaturg.report.views import abstention, confidence, number, provenances, truncate, votes
from dramaturg.results.names import reason_name, value_name

_CHALLENGING = {
    ScriptSubset.SCRIPT_SUBSET_FIRST_CHALLENGE,
    ScriptSubset.SCRIPT_SUBSET_SUBSEQUENT_CHALLENGE,
}


def view(index: int, result: DialogueResult) -> SampleView:
    """The test script and the reply of each model."""
    script = result.script
    subset = value_name(ScriptSubset, script.subset).lower()
    return SampleView(
        index=index,
        title=script.task.name,
        sample_id=script.id,
        facts=[("subset", subset), ("turn", str(script.turn))],
        blocks=[
            Block("Task", text=truncate(script.task.description)),
            Block("Dialogue so far", steps=list(_utterances(result)), open=True),
        ],
        subjects=[_reply(reply, result) for reply in result.replies],
        tags=sorted(result.tags.items()),
        filters=[("task", script.task.name)],
        disagreement=_disagreement(result),
    )


def _utterances(result: DialogueResult) -> Iterator[StepView]:
    """The turns; the last one, which the replies answer, is marked."""
    last = len(result.script.utterances) - 1
    hard = result.script.subset in _CHALLENGING
    for place, utterance in enumerate(result.script.utterances):
        speaker = "user" if utterance.speaker == dialogue_pb2.SPEAKER_USER else "simulator"
        mark = ("challenging turn" if hard else "turn that is answered") if place == last else ""
        yield StepView(truncate(f"{speaker}: {utterance.text}"), mark=mark)


def _disagreement(result: DialogueResult) -> str:
    """The models on whose replies the judges of a panel differ, and comparisons whose orders differ."""
    ratings: defaultdict[str, set[float]] = defaultdict(set)
    for one in result.ratings:
        if one.rating.HasField("value"):
            ratings[one.model].add(one.rating.value)
    models = [model for model, values in ratings.items() if len(values) > 1]
    parts = [f"ratings differ for {', '.join(models)}"] if models else []
    if any(vote.inconsistent for one in result.comparisons for vote in one.comparison.votes):
        parts.append("the orders of a comparison differ")
    return "; ".join(parts)


def _reply(reply: ModelReply, result: DialogueResult) -> SubjectView:
    ratings = [rating for rating in result.ratings if rating.model == reply.model]
    compared = [one for one in result.comparisons if reply.model == one.first_model]
    judgements = [
        JudgementView(
            "rating",
            "number",
            number(one.rating.value),
            "",
            one.judge,
            confidence(one.rating),
            rationale=truncate(one.rating.rationale),
        )
        if one.rating.HasField("value")
        else abstention("rating", one.rating.abstain_reason, one.judge, one.rating.rationale)
        for one in ratings
    ]
    return SubjectView(
        title=_title(reply),
        model=reply.model,
        text=truncate(reply.text),
        judgements=judgements + [_comparison(one) for one in compared],
        provenances=provenances(
            [reply.provenance]
            + [one.rating.provenance for one in ratings]
            + [one.comparison.provenance for one in compared]
        ),
    )


def _title(reply: ModelReply) -> str:
    if reply.abstain_reason:
        return f"no reply: {reason_name(reply.abstain_reason)}"
    return f"reply: {reason_name(reply.failure_reason)}" if reply.failure_reason else "reply"


def _comparison(item: ReplyComparison) -> JudgementView:
    measure, comparison = f"against {item.second_model}", item.comparison
    if comparison.preference == pair_judge_service_pb2.PREFERENCE_ABSTAIN:
        reasons = [vote.abstain_reason for vote in comparison.votes if vote.abstain_reason]
        return abstention(measure, reasons[0] if reasons else 0, item.judge)
    label = {1: "WIN", 2: "LOSE"}.get(comparison.preference, value_name(Preference, comparison.preference))
    return JudgementView(
        measure,
        "number",
        label,
        judge=item.judge,
        confidence=confidence(comparison),
        findings=votes(comparison),
    )
