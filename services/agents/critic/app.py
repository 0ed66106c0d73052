"""The app of the critic agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dramaturg.judge import roles
from dramaturg.judge.apps import AgentApp
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.criteria_judge import CONSTRAINTS, REFERENCE, CriteriaJudge, load_criteria_prompt
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.shapes import Text
from dramaturg.service.contract import Contract
from services.agents.critic.settings import CriticSettings

if TYPE_CHECKING:
    from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceAsyncStub

PROMPTS = Path(__file__).parent / "prompts"
"""The folder of the service's prompts."""


class App(AgentApp[CriticSettings]):
    """The critic agent as a service."""

    def __init__(self, settings: CriticSettings | None = None) -> None:
        super().__init__(settings or CriticSettings(), PROMPTS)

    def llm(self, asker: Asker, library: PromptLibrary) -> Contract:
        """The contract with a model, which compares with the reference where there is one."""
        criteria = roles.CRITIC.criteria
        return judge_contract(
            CriteriaJudge(
                name="llm-critic",
                description="Has a language model compare a script with a reference.",
                criteria=criteria,
                asker=asker,
                limits=self._settings.excerpts,
                prompt=load_criteria_prompt(library, "critique_alone", criteria, shown=(CONSTRAINTS,)),
                reasoning={"walk": Text("what the goal needs, and what each step does for it")},
                comparing_prompt=load_criteria_prompt(
                    library, "critique", criteria, shown=(CONSTRAINTS, REFERENCE)
                ),
                comparison={
                    "comparison": Text("which steps correspond, and what only one of the two scripts has")
                },
            )
        )

    def offline(self, embeddings: EmbeddingServiceAsyncStub) -> Contract:
        from services.agents.critic.offline import OfflineCritic

        return judge_contract(OfflineCritic(embeddings))
