"""Parts of flat judgements that several kinds share."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import Message

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.api.evaluation.v1.texts_pb2 import TextsResult
from dramaturg.api.judging.v1 import pair_judge_service_pb2
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairResponse, Preference

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


def panel_provenances(result: Message, row: RunResult) -> Iterator[Provenance]:
    """The provenance of each judge of a panel, whose row has none. Only scripts and texts have panels."""
    if isinstance(result, ScriptsResult):
        entries = (one for one in result.candidates if one.candidate_id == row.candidate_id)
        given = (assessed.assessment for one in entries for assessed in one.assessments)
    elif isinstance(result, TextsResult):
        texts = (one for one in result.texts if one.text_id == row.candidate_id)
        given = (assessed.assessment for one in texts for assessed in one.assessments)
    else:
        return
    for assessment in given:
        if any(verdict.criterion == row.measure for verdict in assessment.verdicts):
            yield assessment.provenance


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
            row.rationale = f"prefers {Preference.Name(comparison.preference).removeprefix('PREFERENCE_')}"
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
