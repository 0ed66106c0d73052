"""The execute agent: walks through a script step by step, without a reference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dramaturg.judge import roles
from dramaturg.judge.answers import STEP_NOTES
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.criteria_judge import CONSTRAINTS, CriteriaQuestion
from dramaturg.judge.sections import SHAPE
from dramaturg.judge.shapes import Text
from dramaturg.judge.spec import criteria_spec
from dramaturg.service.contract import Contract

if TYPE_CHECKING:
    from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceAsyncStub


def _offline(embeddings: EmbeddingServiceAsyncStub) -> Contract:
    from services.agents.execute.offline import OfflineExecutor

    return judge_contract(OfflineExecutor(embeddings))


SPEC = criteria_spec(
    role=roles.EXECUTE,
    description="Has a language model walk through a script step by step.",
    prompts=Path(__file__).parent / "prompts",
    question=CriteriaQuestion(
        "execute",
        shown=(CONSTRAINTS,),
        reasoning={
            STEP_NOTES: SHAPE,
            "end": Text("what there is after the last step"),
            "left": Text("what of the goal is then still to be done; none"),
        },
    ),
    offline=_offline,
)
