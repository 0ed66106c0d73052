"""The protocol of completion providers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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


@dataclass(frozen=True, slots=True)
class Reading:
    """How a response to a request of a batch is read."""

    omitted: tuple[str, ...] = ()
    """The parameters of the call that the request omitted, by name."""
    stop: tuple[str, ...] = ()
    """The texts at which the answer is cut here."""


class BatchProvider(Protocol):
    """The batches of a provider. Its methods raise ProviderError, ValueError or TypeError.

    Attributes:
        most_bytes: The largest batch, in bytes of requests as JSON.
    """

    most_bytes: int

    def knows(self, call: Call) -> bool:
        """Whether a call of its kind was made by this process, so that refused parameters are known."""

    def request(self, call: Call) -> tuple[Any, Reading]:
        """The request of a call in a batch, as JSON, and how the response is read."""

    async def submit(self, batch: str, requests: Mapping[str, Any]) -> str:
        """Sends a batch; returns the provider's id of it.

        Args:
            batch: Our id.
            requests: The requests by their keys.
        """

    async def find(self, batch: str, since: float, count: int) -> str | None:
        """The provider's id of a batch, by our id. Empty: it did not arrive. None: that cannot be told yet.

        Args:
            batch: Our id.
            since: When it was sent at the earliest, in seconds since 1970.
            count: The number of its requests.
        """

    async def collect(self, remote: str, readings: Mapping[str, Reading]) -> Mapping[str, Answer] | None:
        """The answers of a batch by their keys. None: it has not ended. A failed request has no answer."""

    async def cancel(self, remote: str) -> None:
        """Has a batch end with the answers that it has."""
