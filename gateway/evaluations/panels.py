"""The verdict of a panel of judges."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Finding, Outcome, Verdict
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment


def decide(assessments: Sequence[CandidateAssessment], order: Sequence[str]) -> Sequence[Verdict]:
    """The verdicts on one candidate, of all its assessments.

    Args:
        assessments: The normalized assessments of one candidate, a panel's judges as selected.
        order: The criteria in the order of the verdicts.

    Returns:
        One verdict for each criterion, in the given order, then others by name. A criterion that one judge
        judged has its verdict as it is.
    """
    ballots: dict[str, list[tuple[str, Verdict]]] = {}
    for assessment in assessments:
        for verdict in assessment.assessment.verdicts:
            ballots.setdefault(verdict.criterion, []).append((assessment.judge, verdict))
    standard = [criterion for criterion in order if criterion in ballots]
    return [_count(ballots[criterion]) for criterion in [*standard, *sorted(set(ballots) - set(order))]]


def _count(ballots: Sequence[tuple[str, Verdict]]) -> Verdict:
    """The majority of those that did not abstain, or the mean of their scores; else an abstention."""
    if len(ballots) == 1:
        return ballots[0][1]
    decided = [verdict for _, verdict in ballots if verdict.outcome != verdict_pb2.OUTCOME_ABSTAIN]
    rationale = "Panel: " + ", ".join(f"{judge} {_ballot(verdict)}" for judge, verdict in ballots)
    panel = Verdict(criterion=ballots[0][1].criterion, rationale=f"{rationale}.")
    scores = [verdict.score for verdict in decided if verdict.outcome == verdict_pb2.OUTCOME_SCORED]
    if scores:
        panel.outcome, panel.score = verdict_pb2.OUTCOME_SCORED, sum(scores) / len(scores)
        return panel
    for outcome in (verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_FAIL):
        winners = [verdict for verdict in decided if verdict.outcome == outcome]
        if 2 * len(winners) > len(decided):
            panel.outcome = outcome
            panel.findings.extend(_union(winners))
            return panel
    panel.outcome = verdict_pb2.OUTCOME_ABSTAIN
    panel.abstain_reason = verdict_pb2.ABSTAIN_REASON_PANEL_SPLIT if decided else ballots[0][1].abstain_reason
    return panel


def _ballot(verdict: Verdict) -> str:
    if verdict.outcome == verdict_pb2.OUTCOME_SCORED:
        return f"{verdict.score:g}"
    return Outcome.Name(verdict.outcome).removeprefix("OUTCOME_")


def _union(verdicts: Sequence[Verdict]) -> Sequence[Finding]:
    """The findings of all, each once."""
    findings: dict[bytes, Finding] = {}
    for verdict in verdicts:
        for finding in verdict.findings:
            findings.setdefault(finding.SerializeToString(deterministic=True), finding)
    return list(findings.values())
