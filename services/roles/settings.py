"""Settings of the role service."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from dramaturg.judge.spec import AskerSettings
from dramaturg.service.settings import Address


class SourceLimits(BaseModel):
    """Limits of prompts, in characters. Longer texts are truncated with a marker."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: int = Field(default=100_000, ge=1000)
    """The limit of the source text."""


class RoleSettings(AskerSettings):
    section: ClassVar[str] = "roles"

    excerpts: SourceLimits = SourceLimits()
    """Limits of the source text in the prompt."""
    embedding_target: Address = Field(default="localhost:50051", min_length=1)
    """The address of EmbeddingService."""
    embedding_model: str = Field(default="", max_length=500)
    """The embedding model, e.g. a Sentence-BERT. Empty: the embedding service's default."""
