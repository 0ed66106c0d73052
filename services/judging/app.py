"""Wires the single judge: its settings, its prompts and its contract."""

from __future__ import annotations

from pathlib import Path

from dramaturg.judge.apps import JudgeApp
from dramaturg.judge.contracts import script_judge_contract
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.service.contract import Contract
from services.judging.script.llm import LlmScriptJudge
from services.judging.settings import ScriptJudgeSettings

PROMPTS = Path(__file__).parent / "script" / "prompts"
"""The folder of the service's own prompts."""


class App(JudgeApp[ScriptJudgeSettings]):
    """The single judge as a service."""

    def __init__(self, settings: ScriptJudgeSettings | None = None) -> None:
        super().__init__(settings or ScriptJudgeSettings(), PROMPTS)

    def llm(self, asker: Asker, library: PromptLibrary) -> Contract:
        """The contract, served by a model."""
        return script_judge_contract(LlmScriptJudge(asker, library, self._settings.excerpts))
