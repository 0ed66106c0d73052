"""Wires the critic agent: its settings, its backend and its contract."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dramaturg.judge.apps import AgentApp
from dramaturg.judge.contracts import critic_contract
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.service.contract import Contract
from services.agents.critic.llm import LlmCritic
from services.agents.critic.settings import CriticSettings

if TYPE_CHECKING:
    from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceAsyncStub

PROMPTS = Path(__file__).parent / "prompts"
"""The folder of the service's own prompts."""


class App(AgentApp[CriticSettings]):
    """The critic agent as a service."""

    def __init__(self, settings: CriticSettings | None = None) -> None:
        super().__init__(settings or CriticSettings(), PROMPTS)

    def llm(self, asker: Asker, library: PromptLibrary) -> Contract:
        """The contract, served by a model."""
        return critic_contract(LlmCritic(asker, library, self._settings.excerpts))

    def offline(self, embeddings: EmbeddingServiceAsyncStub) -> Contract:
        """The contract, served by embeddings and rules."""
        from services.agents.critic.offline import OfflineCritic

        return critic_contract(OfflineCritic(embeddings))
