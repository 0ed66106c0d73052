"""The critic: compares a script with a reference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dramaturg.judge import roles
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.criteria_judge import ACTIONS, CONSTRAINTS, REFERENCE, CriteriaQuestion
from dramaturg.judge.shapes import MOST_CHARACTERS, Text
from dramaturg.judge.spec import criteria_spec
from dramaturg.service.contract import Contract

if TYPE_CHECKING:
    from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceAsyncStub


def _offline(embeddings: EmbeddingServiceAsyncStub) -> Contract:
    from services.agents.critic.offline import OfflineCritic

    return judge_contract(OfflineCritic(embeddings))


SPEC = criteria_spec(
    role=roles.CRITIC,
    description="Has a language model compare a script with a reference.",
    prompts=Path(__file__).parent / "prompts",
    question=CriteriaQuestion("critique_alone", shown=(CONSTRAINTS,), reasoning=ACTIONS),
    comparison=CriteriaQuestion(
        "critique",
        shown=(CONSTRAINTS, REFERENCE),
        reasoning={
            "comparison": Text(
                "what each step does: 1: ..., 2: ..., 3: ..., then what the reference has besides",
                most=MOST_CHARACTERS,
            )
        },
    ),
    offline=_offline,
)
