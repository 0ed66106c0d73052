"""Wires the commonsense agent: its settings, its backend and its contract."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dramaturg.judge.apps import AgentApp
from dramaturg.judge.contracts import commonsense_contract
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.service.contract import Contract
from services.agents.commonsense.llm import LlmCommonsenseChecker
from services.agents.commonsense.settings import CommonsenseSettings

if TYPE_CHECKING:
    from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceAsyncStub

PROMPTS = Path(__file__).parent / "prompts"
"""The folder of the service's own prompts."""


class App(AgentApp[CommonsenseSettings]):
    """The commonsense agent as a service."""

    def __init__(self, settings: CommonsenseSettings | None = None) -> None:
        super().__init__(settings or CommonsenseSettings(), PROMPTS)

    def llm(self, asker: Asker, library: PromptLibrary) -> Contract:
        """The contract, served by a model."""
        return commonsense_contract(LlmCommonsenseChecker(asker, library, self._settings.excerpts))

    def offline(self, embeddings: EmbeddingServiceAsyncStub) -> Contract:
        """The contract, served by rules alone."""
        del embeddings
        from services.agents.commonsense.offline import OfflineCommonsenseChecker

        return commonsense_contract(OfflineCommonsenseChecker())
