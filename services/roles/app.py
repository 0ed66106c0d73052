"""Application of the role service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceStub
from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from dramaturg.api.roles.v1 import role_service_pb2_grpc
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.service.channel import open_channel
from dramaturg.service.contract import Contract
from services.roles.embedder import Embedder
from services.roles.generator import RoleGenerator
from services.roles.servicer import DESCRIPTOR, RoleServicer
from services.roles.settings import RoleSettings

PROMPTS = Path(__file__).parent / "prompts"
"""The folder of the service's own prompts."""


class App:
    """The role service.

    Args:
        settings: Default: read from the environment.
    """

    name = RoleSettings.section

    def __init__(self, settings: RoleSettings | None = None) -> None:
        self._settings = settings or RoleSettings()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        """See ``dramaturg.service.installed.App``.

        Raises:
            PromptError: A prompt file cannot be used.
        """
        settings = self._settings
        library = PromptLibrary(PROMPTS, settings.prompts_dir, service=self.name)
        async with (
            open_channel(settings.generation_target) as generation,
            open_channel(settings.embedding_target) as embedding,
        ):
            asker = Asker(
                GenerationServiceStub(generation),
                model=settings.model,
                max_output_tokens=settings.max_output_tokens,
                temperature=settings.temperature,
            )
            embedder = Embedder(EmbeddingServiceStub(embedding), settings.embedding_model)
            contract = _contract(RoleServicer(RoleGenerator(asker, library, settings.excerpts), embedder))
            library.describe(contract.identity)
            yield [replace(contract, models=asker)]


def _contract(servicer: RoleServicer) -> Contract:
    return Contract.make(
        DESCRIPTOR,
        role_service_pb2_grpc.add_RoleServiceServicer_to_server,
        servicer,
        name=servicer.name,
        version=servicer.version,
        description=servicer.description,
        capabilities=servicer.capabilities,
    )
