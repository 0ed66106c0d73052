"""The critic with a language model."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.agents.v1.critic_service_pb2 import CritiqueRequest
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.judge import VERSION, criteria_judge, roles
from dramaturg.judge.criteria_judge import CriteriaJudge
from dramaturg.judge.excerpts import ExcerptLimits
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.protocols import CALLS_MODELS


class LlmCritic:
    """Compares a script with the reference, or judges it on its own where there is none.

    Args:
        asker: Asks the model.
        library: The prompts.
        limits: How much of a request the model is shown.
    """

    name: str = "llm-critic"
    version: str = VERSION
    description: str = "Has a language model compare a script with a reference."
    criteria: Sequence[str] = roles.CRITIC.criteria
    capabilities: Sequence[str] = (CALLS_MODELS,)

    def __init__(self, asker: Asker, library: PromptLibrary, limits: ExcerptLimits) -> None:
        placeholders = {*criteria_judge.ALWAYS, criteria_judge.CONSTRAINTS}
        self._comparing = library.load(
            "critique", placeholders={*placeholders, criteria_judge.REFERENCE}, criteria=self.criteria
        )
        self._alone = library.load("critique_alone", placeholders=placeholders, criteria=self.criteria)
        self._judge = CriteriaJudge(asker, limits)

    async def critique(self, request: CritiqueRequest) -> Assessment:
        """Judges missing, redundant and duplicate steps."""
        prompt = self._comparing if request.reference.steps else self._alone
        return await self._judge.judge(request, prompt, self.criteria)
