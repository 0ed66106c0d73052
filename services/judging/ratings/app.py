"""The app of the rating judge."""

from __future__ import annotations

from pathlib import Path

from dramaturg.api.judging.v1 import rating_judge_service_pb2_grpc
from dramaturg.judge.apps import JudgeApp
from dramaturg.judge.contracts import implementation_contract
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.service.contract import Contract
from services.judging.ratings.judge import LlmRatingJudge
from services.judging.ratings.servicer import DESCRIPTOR, RatingJudgeServicer
from services.judging.ratings.settings import RatingJudgeSettings

PROMPTS = Path(__file__).parent / "prompts"
"""The folder of the service's prompts."""


class App(JudgeApp[RatingJudgeSettings]):
    """The rating judge as a service."""

    def __init__(self, settings: RatingJudgeSettings | None = None) -> None:
        super().__init__(settings or RatingJudgeSettings(), PROMPTS)

    def llm(self, asker: Asker, library: PromptLibrary) -> Contract:
        judge = LlmRatingJudge(asker, library, self._settings.excerpts)
        return implementation_contract(
            DESCRIPTOR,
            rating_judge_service_pb2_grpc.add_RatingJudgeServiceServicer_to_server,
            RatingJudgeServicer(judge),
            judge,
        )
