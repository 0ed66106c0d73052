"""The app of the commonsense agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dramaturg.judge import roles
from dramaturg.judge.apps import AgentApp
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.criteria_judge import CriteriaJudge, load_criteria_prompt
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.service.contract import Contract
from services.agents.commonsense.settings import CommonsenseSettings

if TYPE_CHECKING:
    from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceAsyncStub

PROMPTS = Path(__file__).parent / "prompts"
"""The folder of the service's prompts."""


class App(AgentApp[CommonsenseSettings]):
    """The commonsense agent as a service."""

    def __init__(self, settings: CommonsenseSettings | None = None) -> None:
        super().__init__(settings or CommonsenseSettings(), PROMPTS)

    def llm(self, asker: Asker, library: PromptLibrary) -> Contract:
        """The contract with a model. The score is the share of steps that agree with common sense."""
        criteria = roles.COMMONSENSE.criteria
        return judge_contract(
            CriteriaJudge(
                name="llm-commonsense",
                description="Has a language model check every step of a script against common sense.",
                criteria=criteria,
                asker=asker,
                limits=self._settings.excerpts,
                prompt=load_criteria_prompt(library, "commonsense", criteria),
            )
        )

    def offline(self, embeddings: EmbeddingServiceAsyncStub) -> Contract:
        del embeddings
        from services.agents.commonsense.offline import OfflineCommonsense

        return judge_contract(OfflineCommonsense())
