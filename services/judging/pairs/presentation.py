"""The parts of a request in the prompt, fenced and limited, with neutral labels of the texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairRequest, Role
from dramaturg.judge.dialogues import dialogue_excerpt, task_excerpt
from dramaturg.judge.excerpts import Excerpt
from dramaturg.judge.fence import fence, fence_items
from services.judging.pairs.settings import PairLimits

SOURCE, TASK, DIALOGUE = "source", "task", "dialogue"
"""The placeholders of the context that the texts were written for."""
INSTRUCTION, TEXT_1, TEXT_2, ROLES = "instruction", "text_1", "text_2", "roles"
"""The placeholders of the instruction to the writers, the texts in the order shown, and the roles."""


def continues_dialogue(request: ComparePairRequest) -> bool:
    """Whether the texts are replies to a dialogue. Otherwise they have a source text or no context."""
    return request.WhichOneof("subject") == "dialogue"


def present(request: ComparePairRequest, limits: PairLimits, *, swapped: bool) -> dict[str, Excerpt]:
    """Returns the excerpts of a request by placeholder, except the roles.

    Args:
        request: The request.
        limits: The maximum lengths of the excerpts.
        swapped: Whether the second text is shown first.
    """
    shown = _subject(request, limits)
    shown[INSTRUCTION] = _optional("instruction", request.instruction, limits.instruction)
    limit = limits.response if continues_dialogue(request) else limits.text
    texts = [("first", request.first), ("second", request.second)]
    for number, (name, text) in enumerate(reversed(texts) if swapped else texts, start=1):
        fenced = fence(f"text {number}", text, limit=limit)
        # Prompts label a text by its place, provenance by its name in the request.
        shown[f"text_{number}"] = Excerpt((replace(fenced, label=name),))
    return shown


def roles_excerpt(roles: Sequence[Role], limits: PairLimits) -> Excerpt:
    """The roles, numbered from 1."""
    lines = [f"{role.type}: {role.description}" for role in roles]
    return Excerpt((fence_items("roles", "Role", lines, limit=limits.roles),))


def _subject(request: ComparePairRequest, limits: PairLimits) -> dict[str, Excerpt]:
    if not continues_dialogue(request):
        return {SOURCE: _optional("source", request.source, limits.source)}
    subject = request.dialogue
    return {
        TASK: task_excerpt(subject.task, subject.utterances, limits),
        DIALOGUE: dialogue_excerpt(subject.utterances, limits),
    }


def _optional(label: str, text: str, limit: int) -> Excerpt:
    return Excerpt((fence(label, text, limit=limit),) if text.strip() else ())
