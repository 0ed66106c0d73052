"""The commonsense agent: checks every step against common sense. Its score is the share of steps that agree.

Without a language model it abstains always.
"""

from __future__ import annotations

from pathlib import Path

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.judge import roles, verdicts
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.criteria_judge import ACTIONS, CriteriaQuestion
from dramaturg.judge.spec import criteria_spec
from services.agents.offline import DESCRIPTION, VERSION


class OfflineCommonsense:
    """A judge for the role "commonsense" without a model, so that results have its verdict."""

    name = "offline-commonsense"
    version = VERSION
    description = DESCRIPTION
    criteria = roles.COMMONSENSE.criteria
    capabilities: tuple[str, ...] = ()

    async def judge(self, item: JudgeItem) -> Assessment:
        """Abstains from every criterion."""
        return Assessment(
            verdicts=[
                verdicts.abstained(
                    criterion,
                    verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED,
                    "Common sense cannot be judged by similarity: a step with one word changed is as like "
                    "the others as before.",
                )
                for criterion in item.criteria
            ]
        )


SPEC = criteria_spec(
    role=roles.COMMONSENSE,
    description="Has a language model check every step of a script against common sense.",
    prompts=Path(__file__).parent / "prompts",
    question=CriteriaQuestion("commonsense", reasoning=ACTIONS),
    offline=lambda _: judge_contract(OfflineCommonsense()),
)
