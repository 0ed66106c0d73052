"""The single judge with a language model."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.judging.v1.script_judge_service_pb2 import JudgeScriptRequest
from dramaturg.judge import VERSION, criteria_judge, roles
from dramaturg.judge.criteria_judge import CriteriaJudge
from dramaturg.judge.excerpts import ExcerptLimits
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.protocols import CALLS_MODELS


class LlmScriptJudge:
    """Asks one model for every criterion in one call, with a reference where there is one.

    Args:
        asker: Asks the model.
        library: The prompts.
        limits: How much of a request the model is shown.
    """

    name: str = "llm-script-judge"
    version: str = VERSION
    description: str = "Has a language model judge a script on every criterion at once."
    criteria: Sequence[str] = roles.SCRIPT_JUDGE.criteria
    capabilities: Sequence[str] = (CALLS_MODELS,)

    def __init__(self, asker: Asker, library: PromptLibrary, limits: ExcerptLimits) -> None:
        placeholders = {*criteria_judge.ALWAYS, criteria_judge.CONSTRAINTS}
        self._alone = library.load("judge_script", placeholders=placeholders, criteria=self.criteria)
        self._comparing = library.load(
            "judge_script_with_reference",
            placeholders={*placeholders, criteria_judge.REFERENCE},
            criteria=self.criteria,
        )
        self._judge = CriteriaJudge(asker, limits)

    async def judge(self, request: JudgeScriptRequest, criteria: Sequence[str]) -> Assessment:
        """Judges the criteria given, which are some of its own."""
        prompt = self._comparing if request.reference.steps else self._alone
        return await self._judge.judge(request, prompt, criteria)
