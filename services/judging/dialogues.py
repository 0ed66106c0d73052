"""What judges of dialogues share: their settings."""

from __future__ import annotations

from dramaturg.judge.dialogues import DialogueLimits
from dramaturg.judge.settings import AskerSettings


class DialogueJudgeSettings(AskerSettings):
    """The settings of a judge of dialogues; a subclass names its ``section``."""

    excerpts: DialogueLimits = DialogueLimits()
    """How much of a request is shown to the model."""
