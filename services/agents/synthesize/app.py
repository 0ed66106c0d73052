"""The app of the answer synthesize agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dramaturg.judge.apps import AgentApp
from dramaturg.judge.contracts import synthesize_contract
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.service.contract import Contract
from services.agents.synthesize.llm import LlmSynthesizer
from services.agents.synthesize.settings import SynthesizeSettings

if TYPE_CHECKING:
    from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceAsyncStub

PROMPTS = Path(__file__).parent / "prompts"
"""The folder of the service's prompts."""


class App(AgentApp[SynthesizeSettings]):
    """The answer synthesize agent as a service."""

    def __init__(self, settings: SynthesizeSettings | None = None) -> None:
        super().__init__(settings or SynthesizeSettings(), PROMPTS)

    def llm(self, asker: Asker, library: PromptLibrary) -> Contract:
        return synthesize_contract(LlmSynthesizer(asker, library, self._settings.excerpts))

    def offline(self, embeddings: EmbeddingServiceAsyncStub) -> Contract:
        from services.agents.synthesize.offline import OfflineSynthesizer

        return synthesize_contract(OfflineSynthesizer(embeddings))
