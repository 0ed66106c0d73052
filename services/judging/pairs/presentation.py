"""The prompt of each kind of request, and the parts of a request in it: texts fenced, with neutral labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import Field

from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairRequest, Role
from dramaturg.judge.dialogues import DialogueLimits, dialogue_excerpt, task_excerpt
from dramaturg.judge.excerpts import Excerpt
from dramaturg.judge.fence import fence, list_items
from dramaturg.judge.llm import ANSWER_PLACEHOLDER
from dramaturg.judge.prompts import Prompt, PromptLibrary

SOURCE, TASK, DIALOGUE = "source", "task", "dialogue"
"""The placeholders of the context that the texts were written for."""
INSTRUCTION, TEXT_1, TEXT_2, ROLES = "instruction", "text_1", "text_2", "roles"
"""The placeholders of the instruction to the writers, the texts in the order shown, and the roles."""

_TEXTS, _REPLIES = "compare_texts", "compare_replies"
_RULES, _REMINDER = "rules", "reminder"
_VOTING = "voting"
_TIE, _FORCED_CHOICE, _BIAS_CAUTION, _AGAIN = "tie", "forced_choice", "bias_caution", "again"
_PARTS = (_TIE, _FORCED_CHOICE, _BIAS_CAUTION, _AGAIN)


class PairLimits(DialogueLimits):
    """The maximum length of each part of a request in the prompt, in characters. Longer parts are truncated.

    Both texts are truncated to the same length, so that truncation favours neither.
    """

    source: int = Field(default=100_000, ge=1000)
    """The source text."""
    instruction: int = Field(default=20_000, ge=100)
    """The instruction to the writers."""
    text: int = Field(default=50_000, ge=1000)
    """Each of the two texts. For replies to a dialogue ``response`` applies."""
    roles: int = Field(default=100_000, ge=1000)
    """All roles together."""


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
    """The roles, numbered from 1. They are instructions, not material, and stand in no fence."""
    lines = [f"{role.type}: {role.description}" for role in roles]
    return Excerpt((list_items("roles", "Role", lines, limit=limits.roles),))


@dataclass(frozen=True)
class Wording:
    """A prompt with the values of its fixed placeholders."""

    prompt: Prompt
    values: Mapping[str, str]
    """The values of the placeholders that do not come from the content of the request."""
    parameters: Mapping[str, str]
    """The rules that differ from the default, for provenance."""


class PairPrompts:
    """The prompts by kind of comparison, with or without roles.

    Args:
        library: The prompt files.

    Raises:
        PromptError: A prompt file cannot be used.
    """

    def __init__(self, library: PromptLibrary) -> None:
        subjects = {_TEXTS: (SOURCE,), _REPLIES: (TASK, DIALOGUE)}
        self._alone = {kind: _load(library, kind, *subject) for kind, subject in subjects.items()}
        self._by_roles = {
            kind: _load(library, f"{kind}_by_roles", *subject, ROLES) for kind, subject in subjects.items()
        }

    def choose(self, request: ComparePairRequest, *, again: bool) -> Wording:
        """Chooses the prompt of a request.

        Args:
            request: The request.
            again: Whether an earlier answer lacked votes. The prompt then says so, which also avoids the
                cached answer to an equal prompt.
        """
        prompts = self._by_roles if request.roles else self._alone
        prompt = prompts[_REPLIES if continues_dialogue(request) else _TEXTS]
        rules = [] if request.rules.bias_caution_omitted else [_BIAS_CAUTION]
        rules.append(_FORCED_CHOICE if request.rules.forced_choice else _TIE)
        values = {
            _RULES: " ".join(prompt.parts[rule] for rule in rules),
            _REMINDER: prompt.parts[_AGAIN] if again else "",
        }
        parameters = {field.name: "true" for field, _ in request.rules.ListFields()}
        return Wording(prompt, values, parameters)


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


def _load(library: PromptLibrary, name: str, *subject: str) -> Prompt:
    return library.load(
        name,
        fixed=(_RULES, _REMINDER, ANSWER_PLACEHOLDER),
        content=(*subject, INSTRUCTION, TEXT_1, TEXT_2),
        parts=_PARTS,
        parts_from=_VOTING,
    )
