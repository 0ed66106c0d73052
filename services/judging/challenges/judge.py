"""The challenge judge: finds the first turn of a dialogue that is too hard for the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.judging.v1 import challenge_judge_service_pb2 as pb
from dramaturg.api.judging.v1 import challenge_judge_service_pb2_grpc as pb_grpc
from dramaturg.judge import VERSION, roles
from dramaturg.judge.contracts import request_contract
from dramaturg.judge.excerpts import DialogueLimits, dialogue_excerpt, notices, require_turns, task_excerpt
from dramaturg.judge.llm import ANSWER_PLACEHOLDER, Asker, Question
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.protocols import CALLS_MODELS
from dramaturg.judge.spec import JudgeSettings, JudgeSpec, Model
from dramaturg.service.contract import Contract
from services.judging.reasoned_number import ReasonedNumberForm, Scale

TASK, DIALOGUE = "task", "dialogue"
"""The placeholders for the parts of a request."""
TURN_COUNT = "turn_count"
"""The placeholder for the number of turns."""


class LlmChallengeJudge:
    """Asks a model for the first challenging turn in one call.

    Args:
        asker: Asks the model.
        library: The prompts.
        limits: The maximum lengths of the parts of a request in the prompt.
    """

    name: str = "llm-challenge-judge"
    version: str = VERSION
    description: str = "Has a language model find the first turn that was too hard for a simulator."
    criteria: Sequence[str] = ()
    capabilities: Sequence[str] = (CALLS_MODELS,)

    def __init__(self, asker: Asker, library: PromptLibrary, limits: DialogueLimits) -> None:
        self._asker = asker
        self._limits = limits
        self._prompt = library.load(
            "find_challenging_turn", fixed=(ANSWER_PLACEHOLDER,), content=(TASK, DIALOGUE, TURN_COUNT)
        )

    async def find(self, request: pb.FindChallengingTurnRequest) -> pb.FindChallengingTurnResponse:
        """Finds the first challenging turn.

        Raises:
            ServiceError: The utterances are no complete turns, or the model's configuration fails every
                request.
        """
        require_turns(request.utterances, last=dialogue_pb2.SPEAKER_SIMULATOR)
        turn_count = len(request.utterances) // 2
        shown = {
            TASK: task_excerpt(request.task, request.utterances, self._limits),
            DIALOGUE: dialogue_excerpt(request.utterances, self._limits),
        }
        values = {TURN_COUNT: str(turn_count)}
        question = Question(self._prompt, shown, turn_form(turn_count), values)
        answer = await self._asker.ask_or_abstain(question, request.options)
        response = pb.FindChallengingTurnResponse(provenance=answer.provenance)
        if answer.abstention is not None:
            response.abstain_reason, response.rationale = answer.abstention
        elif answer.value is not None:
            response.turn = answer.value.number
            response.rationale = f"{answer.value.reason} {notices(shown)}".strip()
        return response


def turn_form(turn_count: int) -> ReasonedNumberForm:
    """Returns the form of the answer for a dialogue of ``turn_count`` turns."""
    return ReasonedNumberForm(
        "turn",
        "for each turn: how hard the request is, and what is right or wrong in the answer",
        Scale("the number of the first challenging turn; 0 if there is none", 0, turn_count),
    )


def _llm(model: Model[JudgeSettings[DialogueLimits]]) -> Contract:
    judge = LlmChallengeJudge(model.asker, model.library, model.settings.excerpts)
    return request_contract(
        pb.DESCRIPTOR.services_by_name["ChallengeJudgeService"],
        pb_grpc.add_ChallengeJudgeServiceServicer_to_server,
        judge,
        judge.find,
    )


SPEC = JudgeSpec(
    role=roles.CHALLENGE_JUDGE,
    prompts=Path(__file__).parent / "prompts",
    settings=JudgeSettings[DialogueLimits],
    llm=_llm,
)
