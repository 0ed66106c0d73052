"""The interface of a kind of results, and the parts of flat judgements that several kinds share.

A kind is a package ``dramaturg.kinds.<kind>``; ``dramaturg.kinds`` lists all kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_ABSTAIN, OUTCOME_FAIL, OUTCOME_PASS, AbstainReason
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment, ScriptsResult
from dramaturg.api.evaluation.v1.texts_pb2 import TextsResult
from dramaturg.api.judging.v1 import pair_judge_service_pb2
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairResponse, Preference
from dramaturg.results.names import abstention_name, value_name

Description = TypeVar("Description")

_WINS = {
    # Of the first text; the second has one minus it.
    pair_judge_service_pb2.PREFERENCE_FIRST: 1.0,
    pair_judge_service_pb2.PREFERENCE_SECOND: 0.0,
    pair_judge_service_pb2.PREFERENCE_TIE: 0.5,
}


def set_abstention(row: RunResult, reason: AbstainReason.ValueType) -> None:
    """Makes a row an abstention."""
    row.outcome = verdict_pb2.OUTCOME_ABSTAIN
    row.abstain_reason = reason


def set_provenance(row: RunResult, provenance: Provenance) -> None:
    """Sets the provenance of a row unless it is empty."""
    if provenance.ByteSize():
        row.provenance.CopyFrom(provenance)


def judges_of_verdicts(
    result: Message, described: Callable[[Provenance], Description]
) -> Mapping[tuple[str, str], Sequence[Description]]:
    """The judges of each verdict of scripts or texts, all those of a panel; empty for other kinds.

    Args:
        result: The result.
        described: Describes a judge by the provenance of its answer.

    Returns:
        By the id of the candidate or text, and the criterion.
    """
    if isinstance(result, ScriptsResult):
        judged = [(one.candidate_id, one.assessments) for one in result.candidates]
    elif isinstance(result, TextsResult):
        judged = [(one.text_id, one.assessments) for one in result.texts]
    else:
        return {}
    found: dict[tuple[str, str], list[Description]] = {}
    for subject, assessments in judged:
        for assessed in assessments:
            description = described(assessed.assessment.provenance)
            for verdict in assessed.assessment.verdicts:
                found.setdefault((subject, verdict.criterion), []).append(description)
    return found


def comparison_rows(
    measure: str, models: tuple[str, str], judge: str, comparison: ComparePairResponse
) -> Iterator[RunResult]:
    """One row for each of the two texts; their values add up to 1."""
    for index, model in enumerate(models):
        row = RunResult(
            model=model,
            candidate_id=("first", "second")[index],
            measure=measure,
            label=models[1 - index],
            role="pair-judge",
            judge=judge,
        )
        set_provenance(row, comparison.provenance)
        if comparison.HasField("measured_confidence"):
            row.measured_confidence = comparison.measured_confidence
        won = _WINS.get(comparison.preference)
        if won is None:
            set_abstention(row, _reason(comparison))
        else:
            row.value = won if index == 0 else 1.0 - won
            row.rationale = f"prefers {value_name(Preference, comparison.preference)}"
        if len(comparison.votes) == 1:  # the rationales of several voters stay in the sample
            vote = comparison.votes[0]
            rationales = dict.fromkeys(ballot.rationale for ballot in vote.ballots if ballot.rationale)
            row.rationale = "\n".join(filter(None, (row.rationale, *rationales)))
            if vote.HasField("confidence"):
                row.confidence = vote.confidence
        yield row


def _reason(comparison: ComparePairResponse) -> AbstainReason.ValueType:
    reasons = (vote.abstain_reason for vote in comparison.votes if vote.abstain_reason)
    return next(reasons, verdict_pb2.ABSTAIN_REASON_UNSPECIFIED)


def _nothing(result: Any) -> str:
    del result
    return ""


def _no_groups(result: Any) -> Iterable[tuple[str, str]]:
    del result
    return ()


@dataclass(frozen=True)
class Judgement:
    """A judged item, as comparisons and agreement with people need it."""

    sample: str
    """The id of the sample; of a task without an id, its goal. May be empty."""
    subject: str
    """The judged part of the sample, e.g. the candidate."""
    model: str
    """The author of the subject."""
    aspect: str
    """The criterion, prompt, judge or method."""
    value: bool | float | None
    """Whether it passed, or its score. None: an abstention."""
    reason: AbstainReason.ValueType = AbstainReason.ABSTAIN_REASON_UNSPECIFIED
    """The reason of an abstention."""
    confidence: float | None = None
    label: str = ""
    """The score as text, where it differs from the value, e.g. "4 of 1 to 5"."""

    def outcome(self) -> str:
        """The outcome as text: "passed", "failed", the score, or the reason of the abstention."""
        if self.value is None:
            return abstention_name(self.reason)
        if isinstance(self.value, bool):
            return "passed" if self.value else "failed"
        return self.label or f"{self.value:.4g}"


def row_judgement(sample: str, subject: str, aspect: str, row: RunResult) -> Judgement:
    """The judgement of a row."""
    value: bool | float | None = row.value if row.HasField("value") else None
    if value is not None and row.outcome in (OUTCOME_PASS, OUTCOME_FAIL):
        value = row.outcome == OUTCOME_PASS
    confidence = row.confidence if row.HasField("confidence") else None
    label = row.label if isinstance(value, float) else ""
    return Judgement(sample, subject, row.model, aspect, value, row.abstain_reason, confidence, label)


def candidate_judgements(result: Any, rows: Iterable[RunResult]) -> Iterator[Judgement]:
    """The judgements of a task's candidates, by measure."""
    for row in rows:
        yield row_judgement(result.task.id or result.task.goal, row.candidate_id, row.measure, row)


class JudgeAnswer(NamedTuple):
    """A judgement of one judge, also as a member of a panel."""

    role: str
    judge: str
    provenance: Provenance
    abstained: bool


def row_answers(result: Any, rows: Iterable[RunResult]) -> Iterator[JudgeAnswer]:
    """The judgements of the judges that rows name."""
    del result
    for row in rows:
        if row.judge:
            yield JudgeAnswer(row.role, row.judge, row.provenance, row.outcome == OUTCOME_ABSTAIN)


def assessment_answers(assessments: Iterable[CandidateAssessment]) -> Iterator[JudgeAnswer]:
    """The judgements of every judge, which the verdicts of a panel hide."""
    for one in assessments:
        for verdict in one.assessment.verdicts:
            abstained = verdict.outcome == OUTCOME_ABSTAIN
            yield JudgeAnswer(one.role, one.judge, one.assessment.provenance, abstained)


@dataclass(frozen=True)
class Comparability:
    """How results of a kind are compared with results of other runs."""

    value: str
    """The meaning of a value, as a predicate, e.g. "passed"."""
    judgements: Callable[[Any, Iterable[RunResult]], Iterable[Judgement]]
    """The compared judgements of a result, from the result and its rows. Items without a right answer, e.g.
    decisions without a gold label, are omitted.
    """
    scale: tuple[float, float] | None = None
    """The lowest and the highest score. None: all values are verdicts."""
    shares: bool = True
    """Whether means are shown as shares of 1."""
    labelled: bool = False
    """Whether labels of people are joined to judgements. If False, results contain their right answers."""


@dataclass(frozen=True)
class ResultKind:
    """The results of one kind of evaluation."""

    name: str
    """The member of ``RunSample.result``."""
    json_member: str
    """A member that only this kind has among the results of a file, as named in protobuf's JSON."""
    rows: Callable[[Any, bool], Iterable[RunResult]]
    """Flattens a result into judgements, in order. The flag tells whether rationales, findings and provenance
    are needed; a kind may ignore it.
    """
    ranking: str
    """The sentence that states how models are ranked by default."""
    ranked: bool = True
    """Whether models are under test. If False, there is no leaderboard."""
    primary_measure: str = ""
    """The measure that ranks models by default. Empty: all measures together."""
    secondary_measure: str = ""
    """The measure that ranks where there is no primary one. Empty: none."""
    setup_prefix: str = ""
    """The start of the measures of setups, which are ranked apart, e.g. "correct/". Empty: one setup."""
    answers: Callable[[Any, Iterable[RunResult]], Iterable[JudgeAnswer]] = row_answers
    """The judgements of a result by their judges, from the result and its rows."""
    comparability: Comparability | None = None
    """How results are compared with those of other runs. None: they are not."""
    groups: Callable[[Any], Iterable[tuple[str, str]]] = _no_groups
    """The groups of a result's parts beside its tags, as names and values; a name may have several values."""
    unscored: Callable[[Any], str] = _nothing
    """Why parts of a result have no value although none of them abstains. Empty: there are none."""

    def is_setup(self, measure: str) -> bool:
        """Whether a measure is that of one setup of several, e.g. "correct/naive"."""
        return bool(self.setup_prefix) and measure.startswith(self.setup_prefix)

    def is_primary(self, measure: str) -> bool:
        """Whether a measure is the primary one, or that of a setup."""
        return measure == self.primary_measure or self.is_setup(measure)

    def may_rank(self, measure: str) -> bool:
        """Whether a measure can be that of the leaderboard by default."""
        if not self.primary_measure:
            return not measure
        return self.is_primary(measure) or measure == self.secondary_measure
