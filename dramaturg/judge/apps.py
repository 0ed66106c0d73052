"""Apps of judges: settings, prompts, the channel to a dependency, and the contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceStub
from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.settings import AgentSettings, AskerSettings
from dramaturg.service.channel import open_channel
from dramaturg.service.contract import Contract

if TYPE_CHECKING:
    from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceAsyncStub


SettingsT = TypeVar("SettingsT", bound=AskerSettings)
AgentSettingsT = TypeVar("AgentSettingsT", bound=AgentSettings)


class JudgeApp(ABC, Generic[SettingsT]):
    """A service with one judge that uses a model. Subclasses define the judge.

    Args:
        settings: Its settings.
        prompts: The folder of the service's prompts.
    """

    def __init__(self, settings: SettingsT, prompts: Path) -> None:
        self.name = settings.section
        self._settings = settings
        self._prompts = prompts

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        """Opens the channel to the judge's dependency, yields the contract, and closes the channel.

        Raises:
            PromptError: A prompt file cannot be used.
        """
        settings = self._settings
        library = PromptLibrary(self._prompts, settings.prompts_dir, service=self.name)
        async with open_channel(settings.generation_target) as channel:
            asker = Asker(
                GenerationServiceStub(channel),
                model=settings.model,
                max_output_tokens=settings.max_output_tokens,
                temperature=settings.temperature,
            )
            contract = self.llm(asker, library)
            contract.identity.prompt_token_counts.update(library.token_counts)
            yield [replace(contract, models=asker)]

    @abstractmethod
    def llm(self, asker: Asker, library: PromptLibrary) -> Contract:
        """The contract, served by a model."""


class AgentApp(JudgeApp[AgentSettingsT]):
    """An agent that can also work offline."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        """Opens the channel of the configured backend, yields the contract, and closes the channel."""
        if self._settings.backend == "llm":
            async with super().open() as contracts:
                yield contracts
        else:
            async with open_channel(self._settings.embedding_target) as channel:
                yield [self.offline(EmbeddingServiceStub(channel))]

    @abstractmethod
    def offline(self, embeddings: EmbeddingServiceAsyncStub) -> Contract:
        """The contract, served without a model."""
