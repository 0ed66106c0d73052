"""Metrics of evaluations: calls to judges, judgements, and abstentions with their reasons."""

from __future__ import annotations

from collections import Counter as CounterDict
from collections.abc import Iterable
from typing import NamedTuple

from google.protobuf.message import Message

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Outcome
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.kinds import find_kind
from dramaturg.results import names
from dramaturg.results.dialogues import is_panel_mean
from dramaturg.service.telemetry.instruments import Counter, Histogram

JUDGE_CALLS = Counter(
    "dramaturg_judge_calls_total",
    "Calls to judges and other services of roles: answered, or the reason of the abstention.",
    ("role", "judge", "outcome"),
)
JUDGE_SECONDS = Histogram(
    "dramaturg_judge_call_duration_seconds",
    "Duration of calls to judges, including the wait for a slot.",
    ("role", "judge"),
)
EVALUATIONS = Counter(
    "dramaturg_evaluations_total", "Evaluations with a result, including those of runs.", ("evaluation",)
)
JUDGEMENTS = Counter(
    "dramaturg_judgements_total",
    "Judgements by judge: pass, fail, abstain, or value for a number.",
    ("evaluation", "role", "judge", "outcome"),
)
ABSTENTIONS = Counter(
    "dramaturg_abstentions_total",
    "Abstentions by judge and reason.",
    ("evaluation", "role", "judge", "reason"),
)
SHADOW_MISSES = Counter(
    "dramaturg_shadow_misses_total",
    "Candidates and texts that a shadow did not assess: queue-full, late or failed.",
    ("role", "judge", "reason"),
)

# The name of an evaluation is the member of RunSample.result that holds its result.
_NAMES = {
    field.message_type.full_name: field.name
    for field in RunSample.DESCRIPTOR.oneofs_by_name["result"].fields
    if field.message_type is not None
}


def evaluation_name(result: Message) -> str | None:
    """The member of ``RunSample.result`` that holds a result. ``None``: it is no sample of a run."""
    return _NAMES.get(result.DESCRIPTOR.full_name)


def count_judge_call(role: str, judge: str, failed: AbstainReason.ValueType | None, seconds: float) -> None:
    """Counts a call to a judge by the reason of its abstention. None: it answered."""
    JUDGE_CALLS.add(role, judge, "answered" if failed is None else reason_name(failed))
    JUDGE_SECONDS.observe(seconds, role, judge)


class Judgement(NamedTuple):
    """One judgement with the labels that it is counted by."""

    role: str
    judge: str
    outcome: Outcome.ValueType
    reason: AbstainReason.ValueType


def count_result(result: Message, judgements: Iterable[Judgement]) -> None:
    """Counts a result and its judgements. Results that are no samples of runs are not counted.

    Args:
        result: The result of an evaluation.
        judgements: Its judgements, those of every judge of a panel included.
    """
    evaluation = evaluation_name(result)
    if evaluation is None:
        return
    EVALUATIONS.add(evaluation)
    for (role, judge, outcome, reason), count in CounterDict(judgements).items():
        JUDGEMENTS.add(evaluation, role, judge, _OUTCOMES[outcome], amount=count)
        if outcome == verdict_pb2.OUTCOME_ABSTAIN:
            ABSTENTIONS.add(evaluation, role, judge, reason_name(reason), amount=count)


def reason_name(reason: AbstainReason.ValueType) -> str:
    """The label value of a reason, for example "timed-out"."""
    known = AbstainReason.DESCRIPTOR.values_by_number.get(reason)
    # One label for all others: a judge decides on the number.
    return "unknown" if known is None else names.reason_name(reason).lower().replace("_", "-")


_OUTCOMES = {
    verdict_pb2.OUTCOME_UNSPECIFIED: "value",
    verdict_pb2.OUTCOME_PASS: "pass",
    verdict_pb2.OUTCOME_FAIL: "fail",
    verdict_pb2.OUTCOME_ABSTAIN: "abstain",
}


def flat_judgements(result: Message) -> Iterable[Judgement]:
    """The flat judgements of a result, without the means of panels."""
    kind = find_kind(evaluation_name(result))
    if kind is None:
        return ()
    rows = (row for row in kind.results.rows(result, False) if not is_panel_mean(row))
    return (Judgement(row.role, row.judge, row.outcome, row.abstain_reason) for row in rows)
