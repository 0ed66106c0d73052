"""Settings of the single judge."""

from __future__ import annotations

from typing import ClassVar

from dramaturg.judge.settings import JudgeSettings


class ScriptJudgeSettings(JudgeSettings):
    """Section ``script-judge``."""

    section: ClassVar[str] = "script-judge"
