"""Constructors of valid verdicts.

A failed judgement is an abstention with its reason, never a FAIL, a PASS or a zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import (
    AbstainReason,
    Finding,
    FindingKind,
    Severity,
    Span,
    UnitVerdict,
    Verdict,
)
from dramaturg.judge import criteria as names
from dramaturg.judge.conversations import Unit, unit_name

_UNIT_OUTCOMES = (verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_FAIL, verdict_pb2.OUTCOME_ABSTAIN)


def passed(
    criterion: str,
    *,
    rationale: str = "",
    score: float | None = None,
    confidence: float | None = None,
) -> Verdict:
    """Makes the verdict that a criterion is met.

    Args:
        criterion: The criterion's id.
        rationale: The reason, in words.
        score: The degree to which it is met, in [0, 1], for judges that grade.
        confidence: The probability that the outcome is right, in [0, 1], where it is known.

    Raises:
        ValueError: A score or confidence outside [0, 1].
    """
    return Verdict(
        criterion=criterion,
        outcome=verdict_pb2.OUTCOME_PASS,
        rationale=rationale,
        score=_share("score", score),
        confidence=_share("confidence", confidence),
    )


def failed(
    criterion: str,
    findings: Iterable[Finding] = (),
    *,
    rationale: str = "",
    score: float | None = None,
    confidence: float | None = None,
) -> Verdict:
    """Makes the verdict that a criterion is not met.

    Args:
        criterion: The criterion's id.
        findings: The faults found.
        rationale: The reason, in words.
        score: The degree to which it is met, in [0, 1], for judges that grade.
        confidence: The probability that the outcome is right, in [0, 1], where it is known.

    Raises:
        ValueError: A score or confidence outside [0, 1].
    """
    return Verdict(
        criterion=criterion,
        outcome=verdict_pb2.OUTCOME_FAIL,
        findings=findings,
        rationale=rationale,
        score=_share("score", score),
        confidence=_share("confidence", confidence),
    )


def scored(
    criterion: str,
    score: float,
    findings: Iterable[Finding] = (),
    *,
    rationale: str = "",
    confidence: float | None = None,
) -> Verdict:
    """Makes the verdict on a criterion with a scale.

    Args:
        criterion: The criterion's id.
        score: The score, on the scale of the criterion.
        findings: The faults found.
        rationale: The reason, in words.
        confidence: The probability that the score is right, in [0, 1], where it is known.

    Raises:
        ValueError: A score that is no finite number, or a confidence outside [0, 1].
    """
    if not math.isfinite(score):
        raise ValueError(f"the score is {score}; it must be a finite number")
    return Verdict(
        criterion=criterion,
        outcome=verdict_pb2.OUTCOME_SCORED,
        findings=findings,
        rationale=rationale,
        score=score,
        confidence=_share("confidence", confidence),
    )


def abstained(
    criterion: str,
    reason: AbstainReason.ValueType,
    rationale: str = "",
    findings: Iterable[Finding] = (),
) -> Verdict:
    """Makes the verdict that there is no judgement.

    Args:
        criterion: The criterion's id.
        reason: The reason of the abstention.
        rationale: The reason in words.
        findings: Findings despite the abstention, for example advice too weak for a verdict.

    Raises:
        ValueError: The reason is unspecified.
    """
    if reason == verdict_pb2.ABSTAIN_REASON_UNSPECIFIED:
        raise ValueError(f"an abstention from {criterion} needs its reason")
    return Verdict(
        criterion=criterion,
        outcome=verdict_pb2.OUTCOME_ABSTAIN,
        abstain_reason=reason,
        rationale=rationale,
        findings=findings,
    )


def of_units(
    criterion: str, units: Iterable[UnitVerdict], findings: Iterable[Finding] = (), *, rationale: str = ""
) -> Verdict:
    """Makes the verdict on a criterion that is judged for each turn or call.

    It fails if one of them fails, else abstains with the reason of the first that abstains, else passes.

    Args:
        criterion: The criterion's id.
        units: The verdict on each turn or call, in order; one or more.
        findings: The faults found. They count where the criterion does not pass.
        rationale: The reason, in words. Empty: those of the units that do not pass.

    Raises:
        ValueError: There are no units.
    """
    judged = list(units)
    if not judged:
        raise ValueError(f"{criterion} has no turn or call that is judged")
    outcomes = [one.outcome for one in judged]
    told = rationale or "\n".join(
        f"{unit_name(unit_place(one))}: {one.rationale}"
        for one in judged
        if one.rationale and one.outcome != verdict_pb2.OUTCOME_PASS
    )
    if verdict_pb2.OUTCOME_FAIL in outcomes:
        verdict = failed(criterion, findings, rationale=told)
    elif verdict_pb2.OUTCOME_ABSTAIN in outcomes:
        reason = next(one.abstain_reason for one in judged if one.abstain_reason)
        verdict = abstained(criterion, reason, told, findings)
    else:
        verdict = passed(criterion, rationale=told)
    verdict.units.extend(judged)
    return verdict


def by_unit(verdict: Verdict, places: Sequence[Unit]) -> Verdict:
    """Completes the verdict on a criterion that is judged for each turn or call.

    A place without a valid verdict abstains (UNPARSABLE); verdicts on other places are dropped. Without
    places the verdict abstains (NOT_APPLICABLE), and so does one that decides without units (NOT_SUPPORTED).

    Args:
        verdict: The verdict of the judge.
        places: The turns or calls of the conversation, in order.
    """
    criterion = verdict.criterion
    if not places:
        told = "There is no turn of the assistant, or no call of a tool, that the criterion judges."
        return abstained(criterion, verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE, told)
    if not verdict.units:
        if verdict.outcome == verdict_pb2.OUTCOME_ABSTAIN:
            return verdict
        told = f"The judge judged the whole, and not each turn or call by itself. {verdict.rationale}"
        return abstained(criterion, verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED, told.rstrip())
    given = {unit_place(one): one for one in reversed(verdict.units) if is_unit_sound(one)}
    judged = [given.get(place) or _unjudged(place) for place in places]
    combined = of_units(criterion, judged, verdict.findings, rationale=verdict.rationale)
    if verdict.HasField("confidence"):
        combined.confidence = verdict.confidence
    return combined


def is_unit_sound(unit: UnitVerdict) -> bool:
    """Whether the verdict on a turn or a call has an outcome, and a reason if and only if it abstains."""
    abstains = unit.outcome == verdict_pb2.OUTCOME_ABSTAIN
    reasoned = unit.abstain_reason != verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    return unit.outcome in _UNIT_OUTCOMES and abstains == reasoned


def unit_place(unit: UnitVerdict) -> Unit:
    """The turn or call that a verdict is about."""
    return Unit(unit.turn_index, unit.call_index if unit.HasField("call_index") else None)


def finding(
    kind: FindingKind.ValueType,
    description: str,
    *,
    steps: Iterable[int] = (),
    constraint: str = "",
    missing_step: str = "",
    spans: Iterable[Span] = (),
    severity: Severity.ValueType = verdict_pb2.SEVERITY_UNSPECIFIED,
) -> Finding:
    """Makes a finding.

    Args:
        kind: The kind of the fault.
        description: The fault in words.
        steps: The indices of the steps concerned, from 0. They are sorted, each once.
        constraint: The broken constraint, as worded in the task.
        missing_step: The missing step.
        spans: The words that it rests on: part and quote of each.
        severity: How grave it is.
    """
    return Finding(
        kind=kind,
        description=description,
        step_indices=sorted(set(steps)),
        constraint=constraint,
        missing_step=missing_step,
        spans=spans,
        severity=severity,
    )


def empty_candidate(criteria: Iterable[str]) -> list[Verdict]:
    """Returns the defined verdicts for a candidate without content, one per criterion.

    It fails for missing steps and for the goal. The other criteria are abstentions.
    """
    return [_empty(criterion) for criterion in criteria]


def in_order(verdicts: Iterable[Verdict], criteria: Sequence[str]) -> list[Verdict]:
    """Returns one verdict for each criterion, in order. Missing verdicts become abstentions (not supported).

    Raises:
        ValueError: A verdict on a criterion outside ``criteria``, or two verdicts on one criterion.
    """
    given: dict[str, Verdict] = {}
    for verdict in verdicts:
        if verdict.criterion in given or verdict.criterion not in criteria:
            problem = "twice" if verdict.criterion in given else "though it was not asked for"
            raise ValueError(f"{verdict.criterion!r} was judged {problem}")
        given[verdict.criterion] = verdict
    return [given.get(criterion) or _unsupported(criterion) for criterion in criteria]


def unscored(criterion: str) -> Verdict:
    """Makes the abstention of a judge that gives no scores, for a criterion with a scale."""
    return abstained(
        criterion, verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED, "This judge gives no scores on a scale."
    )


def _unjudged(place: Unit) -> UnitVerdict:
    return UnitVerdict(
        turn_index=place.turn_index,
        call_index=place.call_index,
        outcome=verdict_pb2.OUTCOME_ABSTAIN,
        abstain_reason=verdict_pb2.ABSTAIN_REASON_UNPARSABLE,
        rationale="The judge's answer has no verdict on it.",
    )


def _empty(criterion: str) -> Verdict:
    description = "The candidate has no content."
    if criterion in (names.NO_MISSING_STEPS, names.COMPLETES_GOAL):
        return failed(
            criterion, [finding(names.FINDING_KINDS[criterion], description)], rationale=description
        )
    return abstained(criterion, verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE, description)


def _unsupported(criterion: str) -> Verdict:
    return abstained(
        criterion, verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED, "This judge does not judge this criterion."
    )


def _share(name: str, value: float | None) -> float | None:
    if value is not None and not 0.0 <= value <= 1.0:
        raise ValueError(f"the {name} is {value}; it must be in [0, 1]")
    return value
