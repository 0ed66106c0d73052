"""The app of the single judge."""

from __future__ import annotations

from pathlib import Path

from dramaturg.judge import roles
from dramaturg.judge.apps import JudgeApp
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.criteria_judge import ALWAYS, CONSTRAINTS, REFERENCE, CriteriaJudge
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.service.contract import Contract
from services.judging.settings import ScriptJudgeSettings

PROMPTS = Path(__file__).parent / "prompts"
"""The folder of the service's prompts."""


class App(JudgeApp[ScriptJudgeSettings]):
    """The single judge as a service."""

    def __init__(self, settings: ScriptJudgeSettings | None = None) -> None:
        super().__init__(settings or ScriptJudgeSettings(), PROMPTS)

    def llm(self, asker: Asker, library: PromptLibrary) -> Contract:
        """The contract with a model, which compares with the reference where there is one."""
        criteria = roles.SCRIPT_JUDGE.criteria
        placeholders = {*ALWAYS, CONSTRAINTS}
        return judge_contract(
            CriteriaJudge(
                name="llm-script-judge",
                description="Has a language model judge a script on every criterion at once.",
                criteria=criteria,
                asker=asker,
                limits=self._settings.excerpts,
                prompt=library.load("judge_script", placeholders=placeholders, criteria=criteria),
                comparing_prompt=library.load(
                    "judge_script_with_reference",
                    placeholders={*placeholders, REFERENCE},
                    criteria=criteria,
                ),
            )
        )
