"""The app of the single judge."""

from __future__ import annotations

from pathlib import Path

from dramaturg.judge import roles
from dramaturg.judge.apps import JudgeApp
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.criteria_judge import CONSTRAINTS, REFERENCE, CriteriaJudge, load_criteria_prompt
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.shapes import Text
from dramaturg.service.contract import Contract
from services.judging.settings import ScriptJudgeSettings

PROMPTS = Path(__file__).parent / "prompts"
"""The folder of the service's prompts."""
_REASONING = {"walk": Text("what each step needs and does, from start to end")}


class App(JudgeApp[ScriptJudgeSettings]):
    """The single judge as a service."""

    def __init__(self, settings: ScriptJudgeSettings | None = None) -> None:
        super().__init__(settings or ScriptJudgeSettings(), PROMPTS)

    def llm(self, asker: Asker, library: PromptLibrary) -> Contract:
        """The contract with a model, which compares with the reference where there is one."""
        criteria = roles.SCRIPT_JUDGE.criteria
        return judge_contract(
            CriteriaJudge(
                name="llm-script-judge",
                description="Has a language model judge a script on every criterion at once.",
                criteria=criteria,
                asker=asker,
                limits=self._settings.excerpts,
                prompt=load_criteria_prompt(library, "judge_script", criteria, shown=(CONSTRAINTS,)),
                reasoning=_REASONING,
                comparing_prompt=load_criteria_prompt(
                    library, "judge_script_with_reference", criteria, shown=(CONSTRAINTS, REFERENCE)
                ),
                comparison=_REASONING,
            )
        )
