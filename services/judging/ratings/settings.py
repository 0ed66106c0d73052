"""Settings of the rating judge."""

from __future__ import annotations

from typing import ClassVar

from services.judging.dialogues import DialogueJudgeSettings


class RatingJudgeSettings(DialogueJudgeSettings):
    """Section ``rating-judge``."""

    section: ClassVar[str] = "rating-judge"
