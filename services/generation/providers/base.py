"""The protocol of completion providers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from services.generation.calls import Answer, Call
from services.generation.deadlines import Deadline


class Provider(Protocol):
    """A source of completions.

    Attributes:
        name: The name in the configuration.
        address: Identifies the endpoint and the settings that decide its answers; part of every fingerprint.
        default_model: The model of requests that name the provider only. Empty: there is none.
        keeps: Whether the provider keeps its answers, so that the ledger does not.
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
        """Closes connections and files."""
