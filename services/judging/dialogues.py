"""Settings of judges of dialogues."""

from __future__ import annotations

from dramaturg.judge.dialogues import DialogueLimits
from dramaturg.judge.settings import AskerSettings


class DialogueJudgeSettings(AskerSettings):
    """Settings of a judge of dialogues. Subclasses define ``section``."""

    excerpts: DialogueLimits = DialogueLimits()
    """The maximum lengths of the parts of a request in the prompt."""
