"""Settings of judges and of other services that call a model."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from dramaturg.judge.excerpts import ExcerptLimits
from dramaturg.service.settings import Settings


class AskerSettings(Settings):
    """How a model is asked; a subclass names its ``section``, and says how much of a request is shown."""

    generation_target: str = "localhost:50051"
    """Where GenerationService is reached."""
    model: str = Field(default="", max_length=200)
    """The model to use where a request names none. Empty: the generation service's default."""
    max_output_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    """The cap on an answer, in tokens, where a request sets none. Absent: the provider's."""
    temperature: float | None = Field(default=0.0, ge=0, le=2)
    """The temperature where a request sets none. A model that refuses it is asked without; to never send it,
    list it under ``omit`` in the provider's settings.
    """
    prompts_dir: Path | None = None
    """A folder whose prompt files replace the service's own ones of the same name."""


class JudgeSettings(AskerSettings):
    """The settings of a judge of scripts; a subclass names its ``section``."""

    excerpts: ExcerptLimits = ExcerptLimits()
    """How much of a request is shown to the model."""


class AgentSettings(JudgeSettings):
    """The settings of an agent that can also work without a model."""

    backend: Literal["llm", "offline"] = "llm"
    """What judges: a language model, or embeddings and rules."""
    embedding_target: str = "localhost:50051"
    """Where EmbeddingService is reached, for the backend "offline"."""
