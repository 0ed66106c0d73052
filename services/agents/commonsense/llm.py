"""The commonsense checker with a language model."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.agents.v1.commonsense_service_pb2 import CheckCommonsenseRequest
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.judge import VERSION, criteria_judge, roles
from dramaturg.judge.criteria_judge import CriteriaJudge
from dramaturg.judge.excerpts import ExcerptLimits
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.protocols import CALLS_MODELS


class LlmCommonsenseChecker:
    """Holds every step against common sense; its score is the share of steps that agree with it.

    Args:
        asker: Asks the model.
        library: The prompts.
        limits: How much of a request the model is shown.
    """

    name: str = "llm-commonsense"
    version: str = VERSION
    description: str = "Has a language model hold every step of a script against common sense."
    criteria: Sequence[str] = roles.COMMONSENSE.criteria
    capabilities: Sequence[str] = (CALLS_MODELS,)

    def __init__(self, asker: Asker, library: PromptLibrary, limits: ExcerptLimits) -> None:
        self._prompt = library.load("commonsense", placeholders=criteria_judge.ALWAYS, criteria=self.criteria)
        self._judge = CriteriaJudge(asker, limits)

    async def check(self, request: CheckCommonsenseRequest) -> Assessment:
        """Judges whether every step can be carried out."""
        return await self._judge.judge(request, self._prompt, self.criteria)
