"""The app of the challenge judge."""

from __future__ import annotations

from pathlib import Path

from dramaturg.api.judging.v1 import challenge_judge_service_pb2_grpc
from dramaturg.judge.apps import JudgeApp
from dramaturg.judge.contracts import implementation_contract
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.service.contract import Contract
from services.judging.challenges.judge import LlmChallengeJudge
from services.judging.challenges.servicer import DESCRIPTOR, ChallengeJudgeServicer
from services.judging.challenges.settings import ChallengeJudgeSettings

PROMPTS = Path(__file__).parent / "prompts"
"""The folder of the service's prompts."""


class App(JudgeApp[ChallengeJudgeSettings]):
    """The challenge judge as a service."""

    def __init__(self, settings: ChallengeJudgeSettings | None = None) -> None:
        super().__init__(settings or ChallengeJudgeSettings(), PROMPTS)

    def llm(self, asker: Asker, library: PromptLibrary) -> Contract:
        judge = LlmChallengeJudge(asker, library, self._settings.excerpts)
        return implementation_contract(
            DESCRIPTOR,
            challenge_judge_service_pb2_grpc.add_ChallengeJudgeServiceServicer_to_server,
            ChallengeJudgeServicer(judge),
            judge,
        )
