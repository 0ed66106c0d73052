"""The app of the execute agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dramaturg.judge import roles
from dramaturg.judge.answers import STEP_NOTES
from dramaturg.judge.apps import AgentApp
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.criteria_judge import CONSTRAINTS, CriteriaJudge, load_criteria_prompt
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.step_notes import SHAPE
from dramaturg.service.contract import Contract
from services.agents.execute.settings import ExecuteSettings

if TYPE_CHECKING:
    from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceAsyncStub

PROMPTS = Path(__file__).parent / "prompts"
"""The folder of the service's prompts."""


class App(AgentApp[ExecuteSettings]):
    """The execute agent as a service."""

    def __init__(self, settings: ExecuteSettings | None = None) -> None:
        super().__init__(settings or ExecuteSettings(), PROMPTS)

    def llm(self, asker: Asker, library: PromptLibrary) -> Contract:
        """The contract with a model, which judges without a reference."""
        criteria = roles.EXECUTE.criteria
        return judge_contract(
            CriteriaJudge(
                name="llm-execute",
                description="Has a language model walk through a script step by step.",
                criteria=criteria,
                asker=asker,
                limits=self._settings.excerpts,
                prompt=load_criteria_prompt(library, "execute", criteria, shown=(CONSTRAINTS,)),
                reasoning={STEP_NOTES: SHAPE},
            )
        )

    def offline(self, embeddings: EmbeddingServiceAsyncStub) -> Contract:
        from services.agents.execute.offline import OfflineExecutor

        return judge_contract(OfflineExecutor(embeddings))
