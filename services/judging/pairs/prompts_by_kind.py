"""The prompt of each kind of request, with the values of its placeholders."""

from __future__ import annotations

from dataclasses import dataclass

from dramaturg.api.common.v1.provenance_pb2 import PromptReference
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairRequest
from dramaturg.judge.llm import ANSWER_PLACEHOLDER
from dramaturg.judge.prompts import Prompt, PromptLibrary
from services.judging.pairs import presentation as parts

_TEXTS, _REPLIES = "compare_texts", "compare_replies"
_REMINDER = "reminder"


@dataclass(frozen=True)
class Wording:
    """A prompt with the values of its fixed placeholders."""

    prompt: Prompt
    values: dict[str, str]
    """The values of the placeholders that do not come from the request."""
    also_used: tuple[PromptReference, ...] = ()
    """The prompt files whose text is among the values."""


class PairPrompts:
    """The prompts by kind of comparison, with or without roles.

    Args:
        library: The prompt files.

    Raises:
        PromptError: A prompt file cannot be used.
    """

    def __init__(self, library: PromptLibrary) -> None:
        always = {parts.INSTRUCTION, parts.TEXT_1, parts.TEXT_2, _REMINDER, ANSWER_PLACEHOLDER}
        subjects = {_TEXTS: {parts.SOURCE}, _REPLIES: {parts.TASK, parts.DIALOGUE}}
        self._alone = {
            name: library.load(name, placeholders={*always, *subject}) for name, subject in subjects.items()
        }
        self._by_roles = {
            name: library.load(f"{name}_by_roles", placeholders={*always, *subject, parts.ROLES})
            for name, subject in subjects.items()
        }
        self._reminder = library.load("ask_again", placeholders=())

    def choose(self, request: ComparePairRequest, *, again: bool) -> Wording:
        """Chooses the prompt of a request.

        Args:
            request: The request.
            again: Whether an earlier answer lacked votes. The prompt then says so, which also avoids the
                cached answer to an equal prompt.
        """
        prompts = self._by_roles if request.roles else self._alone
        prompt = prompts[_REPLIES if parts.continues_dialogue(request) else _TEXTS]
        if not again:
            return Wording(prompt, {_REMINDER: ""})
        reminder = self._reminder
        return Wording(prompt, {_REMINDER: reminder.messages["user"]}, (reminder.reference,))
