"""The app of the judge of pairs."""

from __future__ import annotations

from pathlib import Path

from dramaturg.api.judging.v1 import pair_judge_service_pb2_grpc
from dramaturg.judge.apps import JudgeApp
from dramaturg.judge.contracts import implementation_contract
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.service.contract import Contract
from services.judging.pairs.judge import LlmPairJudge
from services.judging.pairs.servicer import DESCRIPTOR, PairJudgeServicer
from services.judging.pairs.settings import PairJudgeSettings

PROMPTS = Path(__file__).parent / "prompts"
"""The folder of the service's prompts."""


class App(JudgeApp[PairJudgeSettings]):
    """The judge of pairs as a service."""

    def __init__(self, settings: PairJudgeSettings | None = None) -> None:
        super().__init__(settings or PairJudgeSettings(), PROMPTS)

    def llm(self, asker: Asker, library: PromptLibrary) -> Contract:
        settings = self._settings
        judge = LlmPairJudge(asker, library, settings.excerpts, logprobs=settings.logprobs)
        return implementation_contract(
            DESCRIPTOR,
            pair_judge_service_pb2_grpc.add_PairJudgeServiceServicer_to_server,
            PairJudgeServicer(judge),
            judge,
        )
