"""Settings of the judge of pairs."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from dramaturg.judge.dialogues import DialogueLimits
from dramaturg.judge.settings import AskerSettings


class PairLimits(DialogueLimits):
    """How much is shown of each part of a request, in characters. What is longer is cut, visibly.

    Both texts are cut to the same length, so that cutting favours neither.
    """

    source: int = Field(default=100_000, ge=1000)
    """Of the source text."""
    instruction: int = Field(default=20_000, ge=100)
    """Of what was asked of the writers."""
    text: int = Field(default=50_000, ge=1000)
    """Of each of the two texts; where they continue a dialogue it is ``response``."""
    roles: int = Field(default=100_000, ge=1000)
    """Of all roles together."""


class PairJudgeSettings(AskerSettings):
    """Section ``pair-judge``."""

    section: ClassVar[str] = "pair-judge"

    excerpts: PairLimits = PairLimits()
    """How much of a request is shown to the model."""
    logprobs: bool = True
    """Whether the model is asked for the log-probabilities that confidences are made of. Some endpoints
    refuse requests that ask.
    """
