"""The rubric judge without a language model: it abstains from every criterion.

The rule judge decides what needs none: the rules of a rubric (``dramaturg.judge.rules``).
"""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.judge import VERSION
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.protocols import ANY_CRITERION, CONTEXT
from dramaturg.judge.verdicts import abstained

_REASON = "Without a language model, only criteria with a rule are judged."


class OfflineRubricJudge:
    """Abstains from all criteria."""

    name = "offline-rubric-judge"
    version = VERSION
    description = "Abstains: without a language model, only criteria with a rule are judged."
    criteria: Sequence[str] = ()
    capabilities: Sequence[str] = (ANY_CRITERION, CONTEXT)

    async def judge(self, item: JudgeItem) -> Assessment:
        """Judges a text."""
        return Assessment(
            verdicts=[
                abstained(criterion, verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED, _REASON)
                for criterion in item.criteria
            ]
        )
