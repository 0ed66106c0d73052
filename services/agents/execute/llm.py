"""The executor with a language model."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.agents.v1.execute_service_pb2 import ExecuteRequest
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.judge import VERSION, criteria_judge, roles
from dramaturg.judge.criteria_judge import CriteriaJudge
from dramaturg.judge.excerpts import ExcerptLimits
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.protocols import CALLS_MODELS


class LlmExecutor:
    """Walks through a script step by step, without a reference.

    Args:
        asker: Asks the model.
        library: The prompts.
        limits: How much of a request the model is shown.
    """

    name: str = "llm-execute"
    version: str = VERSION
    description: str = "Has a language model walk through a script as one who carries it out."
    criteria: Sequence[str] = roles.EXECUTE.criteria
    capabilities: Sequence[str] = (CALLS_MODELS,)

    def __init__(self, asker: Asker, library: PromptLibrary, limits: ExcerptLimits) -> None:
        self._prompt = library.load(
            "execute",
            placeholders={*criteria_judge.ALWAYS, criteria_judge.CONSTRAINTS},
            criteria=self.criteria,
        )
        self._judge = CriteriaJudge(asker, limits)

    async def execute(self, request: ExecuteRequest) -> Assessment:
        """Judges constraints, goal and order."""
        return await self._judge.judge(request, self._prompt, self.criteria)
