"""The rating judge: rates a response in a simulation on a scale."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.judging.v1 import rating_judge_service_pb2 as pb
from dramaturg.api.judging.v1 import rating_judge_service_pb2_grpc as pb_grpc
from dramaturg.judge import VERSION, roles
from dramaturg.judge.contracts import request_contract
from dramaturg.judge.excerpts import (
    DialogueLimits,
    Excerpt,
    dialogue_excerpt,
    notices,
    require_turns,
    task_excerpt,
)
from dramaturg.judge.fence import fence
from dramaturg.judge.llm import ANSWER_PLACEHOLDER, Asker, Question
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.protocols import CALLS_MODELS
from dramaturg.judge.spec import JudgeSettings, JudgeSpec, Model
from dramaturg.service.contract import Contract
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

    async def rate(self, request: pb.RateReplyRequest) -> pb.RateReplyResponse:
        """Rates the response. Empty responses are valid: a simulated terminal may print nothing.

        Raises:
            ServiceError: The utterances do not end with the user's, or the model's configuration fails every
                request.
        """
        require_turns(request.utterances, last=dialogue_pb2.SPEAKER_USER)
        shown = {
            TASK: task_excerpt(request.task, request.utterances, self._limits),
            DIALOGUE: dialogue_excerpt(request.utterances, self._limits),
            RESPONSE: Excerpt((fence("last response", request.response, limit=self._limits.response),)),
        }
        answer = await self._asker.ask_or_abstain(Question(self._prompt, shown, FORM), request.options)
        rating = pb.Rating(provenance=answer.provenance)
        if answer.abstention is not None:
            rating.abstain_reason, rating.rationale = answer.abstention
        elif answer.value is not None:
            rating.value = answer.value.number
            rating.rationale = f"{answer.value.reason} {notices(shown)}".strip()
        return pb.RateReplyResponse(rating=rating)


def _llm(model: Model[JudgeSettings[DialogueLimits]]) -> Contract:
    judge = LlmRatingJudge(model.asker, model.library, model.settings.excerpts)
    return request_contract(
        pb.DESCRIPTOR.services_by_name["RatingJudgeService"],
        pb_grpc.add_RatingJudgeServiceServicer_to_server,
        judge,
        judge.rate,
        provenance=attrgetter("rating.provenance"),
    )


SPEC = JudgeSpec(
    role=roles.RATING_JUDGE,
    prompts=Path(__file__).parent / "prompts",
    settings=JudgeSettings[DialogueLimits],
    llm=_llm,
)
