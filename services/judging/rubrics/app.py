"""The app of the rubric judge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from dramaturg.judge.apps import JudgeApp
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.service.contract import Contract
from services.judging.rubrics.judge import LlmRubricJudge, load_rubric_prompt
from services.judging.rubrics.offline import OfflineRubricJudge
from services.judging.rubrics.settings import RubricJudgeSettings

PROMPTS = Path(__file__).parent / "prompts"
"""The folder of the service's prompts."""


class App(JudgeApp[RubricJudgeSettings]):
    """The rubric judge as a service."""

    def __init__(self, settings: RubricJudgeSettings | None = None) -> None:
        super().__init__(settings or RubricJudgeSettings(), PROMPTS)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        """Yields the contract of the configured backend. The offline backend has no dependency."""
        if self._settings.backend == "offline":
            yield [judge_contract(OfflineRubricJudge())]
            return
        async with super().open() as contracts:
            yield contracts

    def llm(self, asker: Asker, library: PromptLibrary) -> Contract:
        return judge_contract(LlmRubricJudge(asker, load_rubric_prompt(library), self._settings.excerpts))
