"""The view of a simulated dialogue (SimulBench)."""

from __future__ import annotations

from collections.abc import Iterator

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import SimulatedDialogue
from dramaturg.report.sample_view import Block, JudgementView, SampleView, StepView, SubjectView
from dramaturg.report.views import abstention, provenances, truncate

MEASURE = "challenging_turn"


def view(index: int, result: SimulatedDialogue) -> SampleView:
    """The task, the dialogue with its challenging turn, and the judgement of that turn."""
    facts = [("complete turns", str(result.turn_count)), ("test scripts", str(len(result.scripts)))]
    if result.ended_early:
        facts.append(("ended early", truncate(result.ended_early)))
    if result.redirected_turns:
        facts.append(("requests asked for twice, turns", ", ".join(map(str, result.redirected_turns))))
    dialogue = SubjectView(
        title="Dialogue",
        model="",
        steps=list(_utterances(result)),
        judgements=[_judgement(result)],
        provenances=provenances(result.provenances),
    )
    return SampleView(
        index=index,
        title=result.task.name,
        sample_id=result.task.id,
        facts=facts,
        blocks=[Block("Task", text=truncate(result.task.description))],
        subjects=[dialogue],
        tags=sorted(result.tags.items()),
        filters=[("task", result.task.name)],
    )


def _utterances(result: SimulatedDialogue) -> Iterator[StepView]:
    for place, utterance in enumerate(result.utterances):
        user = utterance.speaker == dialogue_pb2.SPEAKER_USER
        strategy = f" ({utterance.strategy})" if utterance.strategy else ""
        first = user and place == 2 * (result.challenging_turn - 1) and bool(result.challenging_turn)
        yield StepView(
            truncate(f"{'user' if user else 'simulator'}{strategy}: {utterance.text}"),
            mark="challenging turn" if first else "",
        )


def _judgement(result: SimulatedDialogue) -> JudgementView:
    if not result.HasField("challenging_turn"):
        return abstention(MEASURE, result.challenge_abstain_reason)
    turn = result.challenging_turn
    return JudgementView(MEASURE, "number", f"turn {turn}" if turn else "none", judge=result.challenge_judge)
