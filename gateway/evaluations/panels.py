"""The verdict of a panel of judges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import isclose

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Finding, Outcome, PanelVote, Verdict
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment
from dramaturg.judge.conversations import Unit
from dramaturg.judge.verdicts import unit_place
from dramaturg.results.names import outcome_name, reason_name
from gateway.judges.registry import Judge
from gateway.judges.selection import JudgeAssignment
from gateway.settings import PanelRule


@dataclass(frozen=True)
class _Ballot:
    judge: str
    verdict: Verdict
    weight: float = 1.0
    model: str = ""
    """Its model, where several members are one judge with different models."""
    threshold: float = 0.0
    """The confidence from which on it stands in a cascade; 0 for the last stage."""

    @property
    def vote(self) -> PanelVote:
        verdict = self.verdict
        score = verdict.score if verdict.HasField("score") else None
        return PanelVote(
            judge=self.judge,
            outcome=verdict.outcome,
            abstain_reason=verdict.abstain_reason,
            score=score,
            weight=self.weight,
        )

    def describe(self) -> str:
        """The judge and its vote, as text."""
        if self.verdict.outcome == verdict_pb2.OUTCOME_SCORED:
            vote = f"{self.verdict.score:g}"
        else:
            vote = outcome_name(self.verdict.outcome)
        if self.verdict.abstain_reason:
            vote = f"{vote} ({reason_name(self.verdict.abstain_reason)})"
        if self.threshold:
            found = _confidence(self.verdict)
            stated = "no confidence" if found is None else f"{found:.2f}"
            vote += f" ({stated} for {self.threshold:g})"
        name = f"{self.judge}@{self.model}" if self.model else self.judge
        return f"{name} {vote}" + (f" x {self.weight:g}" if self.weight != 1 else "")


def stands(verdict: Verdict, threshold: float) -> bool:
    """Whether no later stage of a cascade is asked about a verdict.

    Args:
        verdict: The verdict of a stage.
        threshold: The confidence that it must reach; 0 for the last stage.
    """
    if not threshold or verdict.abstain_reason == verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE:
        return True
    found = None if verdict.outcome == verdict_pb2.OUTCOME_ABSTAIN else _confidence(verdict)
    return found is not None and found >= threshold


def decide(
    assessments: Sequence[CandidateAssessment],
    order: Sequence[str],
    assignments: Sequence[JudgeAssignment] = (),
) -> Sequence[Verdict]:
    """The verdicts on one candidate, of all its assessments.

    Members of a registered panel have one verdict by the rule of the panel. Several judges of a criterion,
    panels included, decide by majority.

    Args:
        assessments: The normalized assessments of one candidate, stages of a cascade in their order. A stage
            that was not asked has none.
        order: The criteria in the order of the verdicts.
        assignments: The judge of each assessment. Empty: none is a member of a registered panel.

    Returns:
        One verdict for each criterion, in the given order, then others by name. A criterion that one judge
        judged has its verdict as it is.
    """
    if len(assessments) == 1 and (not assignments or assignments[0].panel is None):
        verdicts = {verdict.criterion: verdict for verdict in assessments[0].assessment.verdicts}
        return [verdicts[criterion] for criterion in _in_order(verdicts, order)]
    seats: dict[str, dict[object, tuple[Judge | None, list[_Ballot]]]] = {}
    models: defaultdict[str, set[str]] = defaultdict(set)
    for one in assignments:
        models[one.judge.name].add(one.model)
    for index, assessed in enumerate(assessments):
        assignment = assignments[index] if assignments else None
        panel = None if assignment is None else assignment.panel
        weight = 1.0 if assignment is None else assignment.weight
        for verdict in assessed.assessment.verdicts:
            model = "" if assignment is None or len(models[assessed.judge]) < 2 else assignment.model
            threshold = 0.0 if assignment is None else assignment.threshold
            ballot = _Ballot(assessed.judge, verdict, weight, model, threshold)
            key: object = index if panel is None else panel
            seats.setdefault(verdict.criterion, {}).setdefault(key, (panel, []))[1].append(ballot)
    return [_of_seats(list(seats[criterion].values())) for criterion in _in_order(seats, order)]


def _in_order(criteria: Collection[str], order: Sequence[str]) -> list[str]:
    """The criteria in an order; those that it lacks come last, by name."""
    return [*filter(criteria.__contains__, order), *sorted(set(criteria) - set(order))]


def count_repeats(judge: str, verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of a judge's repeats: that of the majority; of criteria with a scale the mean score."""
    verdict = _count([_Ballot(judge, one) for one in verdicts], "majority", 1, "Repeats")
    agreeing = (one.rationale for one in verdicts if one.outcome == verdict.outcome and one.rationale)
    verdict.rationale = f"{verdict.rationale} {next(agreeing, '')}".rstrip()
    return verdict


def _of_seats(seats: Sequence[tuple[Judge | None, Sequence[_Ballot]]]) -> Verdict:
    ballots: list[_Ballot] = []
    for panel, votes in seats:
        if panel is None or panel.entry.panel is None:
            ballots += votes
        else:
            table = panel.entry.panel
            if table.rule == "cascade":
                ballots.append(_Ballot(panel.name, _of_stages(votes, panel.name)))
                continue
            title = f"Panel {panel.name!r} ({table.rule})"
            ballots.append(_Ballot(panel.name, _count(votes, table.rule, table.least_votes, title)))
    return ballots[0].verdict if len(ballots) == 1 else _count(ballots, "majority", 1)


def _of_stages(ballots: Sequence[_Ballot], name: str) -> Verdict:
    """The first verdict that stands, else that of the last stage that was asked."""
    place = next(
        (place for place, one in enumerate(ballots) if stands(one.verdict, one.threshold)), len(ballots) - 1
    )
    asked, verdict = ballots[: place + 1], Verdict()
    verdict.CopyFrom(asked[-1].verdict)
    stages = ", ".join(one.describe() for one in asked)
    verdict.rationale = f"Panel {name!r} (cascade): {stages}. {verdict.rationale}".rstrip()
    del verdict.votes[:]
    verdict.votes.extend(one.vote for one in asked)
    return verdict


def _confidence(verdict: Verdict) -> float | None:
    """The confidence that the repeats of the judge measure, else its own. None: neither is known."""
    if verdict.HasField("measured_confidence"):
        return verdict.measured_confidence
    return verdict.confidence if verdict.HasField("confidence") else None


def _count(ballots: Sequence[_Ballot], rule: PanelRule, quorum: int, title: str = "Panel") -> Verdict:
    """The verdict of a rule on the votes of those that did not abstain, else an abstention.

    Turns and calls that the criterion judges one by one are decided by the same rule, each by itself.
    """
    verdict = _count_votes(ballots, rule, quorum, title)
    for place in sorted({unit_place(unit) for one in ballots for unit in one.verdict.units}):
        votes = [replace(one, verdict=_on_unit(one.verdict, place)) for one in ballots]
        counted = _count_votes(votes, rule, quorum, title)
        verdict.units.add(
            turn_index=place.turn_index,
            call_index=place.call_index,
            outcome=counted.outcome,
            abstain_reason=counted.abstain_reason,
            rationale=counted.rationale,
        )
    return verdict


def _on_unit(verdict: Verdict, place: Unit) -> Verdict:
    """A judge's verdict on a turn or call; its abstention from the whole where it judged none."""
    given = next((unit for unit in verdict.units if unit_place(unit) == place), verdict)
    return Verdict(outcome=given.outcome, abstain_reason=given.abstain_reason)


def _count_votes(ballots: Sequence[_Ballot], rule: PanelRule, quorum: int, title: str) -> Verdict:
    """The verdict of a rule, without units."""
    decided = [one for one in ballots if one.verdict.outcome != verdict_pb2.OUTCOME_ABSTAIN]
    panel = Verdict(
        criterion=ballots[0].verdict.criterion,
        rationale=f"{title}: {', '.join(one.describe() for one in ballots)}.",
        votes=[one.vote for one in ballots],
    )
    panel.outcome = verdict_pb2.OUTCOME_ABSTAIN
    if len(decided) < max(quorum, 1):
        panel.abstain_reason = next(
            one.verdict.abstain_reason for one in ballots if one.verdict.abstain_reason
        )
        if decided:
            panel.rationale += f" {len(decided)} of {len(ballots)} voted; the quorum is {quorum}."
        return panel
    if any(one.verdict.outcome == verdict_pb2.OUTCOME_SCORED for one in decided):
        score = _score(decided, rule)
        if score is not None:
            panel.outcome, panel.score = verdict_pb2.OUTCOME_SCORED, score
            return panel
    elif (outcome := _outcome(decided, rule, panel)) is not None:
        panel.outcome = outcome
        panel.findings.extend(_union([one.verdict for one in decided if one.verdict.outcome == outcome]))
        return panel
    panel.abstain_reason = verdict_pb2.ABSTAIN_REASON_PANEL_SPLIT
    return panel


def _score(decided: Sequence[_Ballot], rule: PanelRule) -> float | None:
    """The score by a rule; None where the votes are split."""
    scores = [one.verdict.score for one in decided]
    if rule == "any-fail":
        return min(scores)
    if rule == "unanimous":
        return scores[0] if len(set(scores)) == 1 else None
    weights = [one.weight for one in decided]
    return sum(score * weight for score, weight in zip(scores, weights, strict=True)) / sum(weights)


def _outcome(decided: Sequence[_Ballot], rule: PanelRule, panel: Verdict) -> Outcome.ValueType | None:
    """The outcome by a rule; None where the votes are split. The rule "mean" sets the score of the panel."""
    passes, fails = (
        sum(one.weight for one in decided if one.verdict.outcome == outcome)
        for outcome in (verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_FAIL)
    )
    if rule == "any-fail":
        return verdict_pb2.OUTCOME_FAIL if fails else verdict_pb2.OUTCOME_PASS
    if rule == "unanimous" and passes and fails:
        return None
    if rule == "mean":
        scores = [
            one.verdict.score
            if one.verdict.HasField("score")
            else float(one.verdict.outcome == verdict_pb2.OUTCOME_PASS)
            for one in decided
        ]
        panel.score = sum(scores) / len(scores)
        passes, fails = panel.score, 1 - panel.score
    if isclose(passes, fails):  # sums of weights are rounded
        return None
    return verdict_pb2.OUTCOME_PASS if passes > fails else verdict_pb2.OUTCOME_FAIL


def _union(verdicts: Sequence[Verdict]) -> Sequence[Finding]:
    """The findings of all, each once."""
    findings: dict[bytes, Finding] = {}
    for verdict in verdicts:
        for finding in verdict.findings:
            findings.setdefault(finding.SerializeToString(deterministic=True), finding)
    return list(findings.values())
