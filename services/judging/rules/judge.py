"""The rule judge: decides criteria that have a rule (``dramaturg.judge.rules``), without a model."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.content_pb2 import Conversation
from dramaturg.api.common.v1.verdict_pb2 import Assessment, UnitVerdict, Verdict
from dramaturg.api.judging.v1.judge_service_pb2 import CriterionRule
from dramaturg.judge import VERSION, roles
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.conversations import Unit, unit_text, units_of
from dramaturg.judge.protocols import ANY_CRITERION, CONTEXT, CONVERSATION, IMAGES, TOOL_CALLS
from dramaturg.judge.rules import apply_rule, rule_problem
from dramaturg.judge.spec import JudgeSpec
from dramaturg.judge.verdicts import abstained, failed, of_units, passed
from dramaturg.service import threads
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
            await threads.parse(len(item.candidate.text), _judge, item, criterion)
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
    conversation, unit = item.candidate.conversation, item.units.get(criterion)
    if unit and conversation is not None and (places := units_of(conversation, unit)):
        return of_units(criterion, (_judge_unit(rule, conversation, one, reference) for one in places))
    passes, reason = apply_rule(rule, item.candidate.text, reference, item.candidate.conversation)
    if passes is None:
        return abstained(criterion, verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE, reason)
    return (passed if passes else failed)(criterion, rationale=reason)


def _judge_unit(rule: CriterionRule, conversation: Conversation, unit: Unit, reference: str) -> UnitVerdict:
    turn = Conversation(turns=[conversation.turns[unit.turn_index]])
    passes, reason = apply_rule(rule, unit_text(conversation, unit), reference, turn)
    judged = UnitVerdict(turn_index=unit.turn_index, call_index=unit.call_index, rationale=reason)
    if passes is None:
        judged.outcome = verdict_pb2.OUTCOME_ABSTAIN
        judged.abstain_reason = verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE
    else:
        judged.outcome = verdict_pb2.OUTCOME_PASS if passes else verdict_pb2.OUTCOME_FAIL
    return judged


SPEC = JudgeSpec(role=roles.RULE_JUDGE, settings=Settings, alone=lambda: judge_contract(RuleJudge()))
