"""The prompt of each kind of request, with the values of its placeholders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairRequest
from dramaturg.judge.llm import ANSWER_PLACEHOLDER
from dramaturg.judge.prompts import Prompt, PromptLibrary
from services.judging.pairs import presentation as shown

_TEXTS, _REPLIES = "compare_texts", "compare_replies"
_RULES, _REMINDER = "rules", "reminder"
_VOTING = "voting"
_TIE, _FORCED_CHOICE, _BIAS_CAUTION, _AGAIN = "tie", "forced_choice", "bias_caution", "again"
_PARTS = (_TIE, _FORCED_CHOICE, _BIAS_CAUTION, _AGAIN)


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
        subjects = {_TEXTS: (shown.SOURCE,), _REPLIES: (shown.TASK, shown.DIALOGUE)}
        self._alone = {kind: _load(library, kind, *subject) for kind, subject in subjects.items()}
        self._by_roles = {
            kind: _load(library, f"{kind}_by_roles", *subject, shown.ROLES)
            for kind, subject in subjects.items()
        }

    def choose(self, request: ComparePairRequest, *, again: bool) -> Wording:
        """Chooses the prompt of a request.

        Args:
            request: The request.
            again: Whether an earlier answer lacked votes. The prompt then says so, which also avoids the
                cached answer to an equal prompt.
        """
        prompts = self._by_roles if request.roles else self._alone
        prompt = prompts[_REPLIES if shown.continues_dialogue(request) else _TEXTS]
        rules = [] if request.rules.bias_caution_omitted else [_BIAS_CAUTION]
        rules.append(_FORCED_CHOICE if request.rules.forced_choice else _TIE)
        values = {
            _RULES: " ".join(prompt.parts[rule] for rule in rules),
            _REMINDER: prompt.parts[_AGAIN] if again else "",
        }
        parameters = {field.name: "true" for field, _ in request.rules.ListFields()}
        return Wording(prompt, values, parameters)


def _load(library: PromptLibrary, name: str, *subject: str) -> Prompt:
    return library.load(
        name,
        fixed=(_RULES, _REMINDER, ANSWER_PLACEHOLDER),
        content=(*subject, shown.INSTRUCTION, shown.TEXT_1, shown.TEXT_2),
        parts=_PARTS,
        parts_from=_VOTING,
    )
