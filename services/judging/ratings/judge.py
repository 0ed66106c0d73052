"""The rating judge with a language model."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyRequest, Rating
from dramaturg.judge import VERSION
from dramaturg.judge.dialogues import DialogueLimits, dialogue_excerpt, task_excerpt
from dramaturg.judge.excerpts import Excerpt, notices
from dramaturg.judge.fence import fence
from dramaturg.judge.llm import ANSWER_PLACEHOLDER, Asker, Question
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.protocols import CALLS_MODELS
from services.judging.reasoned_number import ReasonedNumberForm, Scale

TASK, DIALOGUE, RESPONSE = "task", "dialogue", "response"
"""The placeholders for the parts of a request."""

FORM = ReasonedNumberForm(
    "rating",
    "what the response should have been, and where it falls short of that",
    Scale("your rating, a whole number from 1 to 10", 1, 10),
)
"""The form of the answer: from 1 (terrible) to 10 (perfect)."""


class LlmRatingJudge:
    """Asks a model for a rating in one call.

    Args:
        asker: Asks the model.
        library: The prompts.
        limits: The maximum lengths of the parts of a request in the prompt.
    """

    name: str = "llm-rating-judge"
    version: str = VERSION
    description: str = "Has a language model rate a response in a simulation from 1 to 10."
    criteria: Sequence[str] = ()
    capabilities: Sequence[str] = (CALLS_MODELS,)

    def __init__(self, asker: Asker, library: PromptLibrary, limits: DialogueLimits) -> None:
        self._asker = asker
        self._limits = limits
        self._prompt = library.load(
            "rate_reply", fixed=(ANSWER_PLACEHOLDER,), content=(TASK, DIALOGUE, RESPONSE)
        )

    async def rate(self, request: RateReplyRequest) -> Rating:
        """Rates the response. Empty responses are valid: a simulated terminal may print nothing.

        Raises:
            ServiceError: The model's configuration fails every request.
        """
        shown = {
            TASK: task_excerpt(request.task, request.utterances, self._limits),
            DIALOGUE: dialogue_excerpt(request.utterances, self._limits),
            RESPONSE: Excerpt((fence("last response", request.response, limit=self._limits.response),)),
        }
        answer = await self._asker.ask_or_abstain(Question(self._prompt, shown, FORM), request.options)
        rating = Rating(provenance=answer.provenance)
        if answer.abstention is not None:
            rating.abstain_reason, rating.rationale = answer.abstention
        elif answer.value is not None:
            rating.value = answer.value.number
            rating.rationale = f"{answer.value.reason} {notices(shown)}".strip()
        return rating
