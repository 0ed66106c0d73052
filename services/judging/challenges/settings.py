"""Settings of the challenge judge."""

from __future__ import annotations

from typing import ClassVar

from services.judging.dialogues import DialogueJudgeSettings


class ChallengeJudgeSettings(DialogueJudgeSettings):
    """Section ``challenge-judge``."""

    section: ClassVar[str] = "challenge-judge"
