"""Settings of the judge of pairs."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from dramaturg.judge.dialogues import DialogueLimits
from dramaturg.judge.settings import AskerSettings


class PairLimits(DialogueLimits):
    """The maximum length of each part of a request in the prompt, in characters. Longer parts are truncated.

    Both texts are truncated to the same length, so that truncation favours neither.
    """

    source: int = Field(default=100_000, ge=1000)
    """The source text."""
    instruction: int = Field(default=20_000, ge=100)
    """The instruction to the writers."""
    text: int = Field(default=50_000, ge=1000)
    """Each of the two texts. For replies to a dialogue ``response`` applies."""
    roles: int = Field(default=100_000, ge=1000)
    """All roles together."""


class PairJudgeSettings(AskerSettings):
    """Section ``pair-judge``."""

    section: ClassVar[str] = "pair-judge"

    excerpts: PairLimits = PairLimits()
    """The maximum lengths of the parts of a request in the prompt."""
    logprobs: bool = True
    """Whether log-probabilities, the basis of confidences, are requested. Some endpoints refuse such
    requests.
    """
