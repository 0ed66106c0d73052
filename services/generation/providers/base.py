"""What every provider of completions offers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from services.generation.calls import Answer, Call
from services.generation.deadlines import Deadline


class Provider(Protocol):
    """A source of completions.

    Attributes:
        name: Its name in the configuration.
        address: What tells its answers from those of other endpoints; part of every fingerprint.
        default_model: The model where a request names the provider only. Empty: there is none.
        keeps: Whether it keeps its answers itself, so that the completion cache must not.
    """

    name: str
    address: str
    default_model: str
    keeps: bool

    @abstractmethod
    async def complete(self, call: Call, deadline: Deadline) -> Answer:
        """Answers ``call``, or raises ProviderError, DeadlinePassedError or NotRecordedError."""

    @abstractmethod
    async def models(self) -> Sequence[str]:
        """The names of its models, sorted. Raises ProviderError."""

    @abstractmethod
    async def close(self) -> None:
        """Frees its connections and files."""
