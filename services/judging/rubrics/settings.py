"""Settings of the rubric judge."""

from __future__ import annotations

from typing import ClassVar, Literal

from dramaturg.judge.settings import JudgeSettings


class RubricJudgeSettings(JudgeSettings):
    """Section ``rubric-judge``."""

    section: ClassVar[str] = "rubric-judge"
    backend: Literal["llm", "offline"] = "llm"
    """The backend: a language model, or rules for criteria about lengths and quoted words."""
