"""Abstains: without a language model there is no telling whether a step agrees with common sense."""

from __future__ import annotations

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.judge import roles, verdicts
from dramaturg.judge.batches import JudgeItem
from services.agents.offline.identity import DESCRIPTION, VERSION


class OfflineCommonsense:
    """Plays the role "commonsense" where no model is to be had, so that its verdict is accounted for."""

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
