"""What can be configured of the role service."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from dramaturg.judge.settings import AskerSettings


class SourceLimits(BaseModel):
    """How much is shown of a request, in characters. What is longer is cut, visibly."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    source: int = Field(default=100_000, ge=1000)
    """Of the text whose readers are wanted."""


class RoleSettings(AskerSettings):
    section: ClassVar[str] = "roles"

    excerpts: SourceLimits = SourceLimits()
    """How much of a request is shown to the model."""
    embedding_target: str = "localhost:50051"
    """Where EmbeddingService is reached."""
    embedding_model: str = Field(default="", max_length=500)
    """The model that embeds roles, such as a Sentence-BERT. Empty: the embedding service's default."""
