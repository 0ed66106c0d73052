"""Settings of judges and of other services that call a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast

from pydantic import BaseModel, Field

from dramaturg.judge.excerpts import ExcerptLimits
from dramaturg.service.settings import Settings

LimitsT = TypeVar("LimitsT", bound=BaseModel)


class AskerSettings(Settings):
    """Settings of calls to a model. Subclasses define ``section``."""

    generation_target: str = "localhost:50051"
    """The address of GenerationService."""
    model: str = Field(default="", max_length=200)
    """The model of requests that name none. Empty: the default of the generation service."""
    max_output_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    """The default token cap of an answer. Absent: the provider's."""
    temperature: float | None = Field(default=0.0, ge=0, le=2)
    """The default temperature. It is dropped for models that refuse it; to never send it, list it under
    ``omit`` in the provider's settings.
    """
    prompts_dir: Path | None = None
    """A folder of prompt files that replace the service's and the shared files of the same name. Files in its
    subfolder with the service's name take precedence.
    """


class JudgeSettings(AskerSettings, Generic[LimitsT]):
    """Settings of a judge, with the limits of its prompts as parameter. ``JudgeSpec`` defines ``section``."""

    excerpts: LimitsT = Field(default_factory=lambda: cast("Any", {}))
    """The maximum lengths of the parts of a request in the prompt."""


class CriteriaSettings(JudgeSettings[ExcerptLimits]):
    """Settings of a judge of ABSEval's criteria."""

    severity: bool = False
    """Whether the model says how grave each fault is (``Finding.severity``). It costs tokens:
    docs/reference/prompts.md.
    """


class OfflineSettings(JudgeSettings[ExcerptLimits]):
    """Settings of a judge of texts that can also work without a model."""

    backend: Literal["llm", "offline"] = "llm"
    """The backend: a language model, or embeddings and rules."""
    embedding_target: str = "localhost:50051"
    """The address of EmbeddingService, for the backend "offline"."""


class OfflineCriteriaSettings(CriteriaSettings, OfflineSettings):
    """Settings of a judge of ABSEval's criteria that can also work without a model."""
