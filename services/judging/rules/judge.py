"""The rule judge: decides criteria that have a rule (``dramaturg.judge.rules``), without a model."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Verdict
from dramaturg.judge import VERSION, roles, text_pool
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.protocols import ANY_CRITERION, CONTEXT, CONVERSATION, IMAGES, TOOL_CALLS
from dramaturg.judge.rules import apply_rule, rule_problem
from dramaturg.judge.spec import JudgeSpec
from dramaturg.judge.verdicts import abstained, failed, passed
from dramaturg.service.settings import Settings

_NO_RULE = "The criterion has no rule."


class RuleJudge:
    """Judges criteria with a rule; abstains from all others."""

    name = "rule-judge"
    version = VERSION
    description = "Decides criteria with a rule, without a model; abstains from all others."
    criteria: Sequence[str] = ()
    capabilities: Sequence[str] = (ANY_CRITERION, CONTEXT, CONVERSATION, TOOL_CALLS, IMAGES)

    async def judge(self, item: JudgeItem) -> Assessment:
        """Judges a text."""
        verdicts = [
            await text_pool.parse(len(item.candidate.text), _judge, item, criterion)
            for criterion in item.criteria
        ]
        return Assessment(verdicts=verdicts)


def _judge(item: JudgeItem, criterion: str) -> Verdict:
    rule = item.rules.get(criterion)
    if rule is None or criterion in item.scales:
        return abstained(criterion, verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED, _NO_RULE)
    if problem := rule_problem(rule):
        return abstained(criterion, verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED, f"The rule {problem}.")
    reference = "\n".join(step.text for step in item.reference.steps)
    passes, reason = apply_rule(rule, item.candidate.text, reference, item.candidate.conversation)
    if passes is None:
        return abstained(criterion, verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE, reason)
    return (passed if passes else failed)(criterion, rationale=reason)


SPEC = JudgeSpec(role=roles.RULE_JUDGE, settings=Settings, alone=lambda: judge_contract(RuleJudge()))
