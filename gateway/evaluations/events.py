"""Verdicts as events ``gen_ai.evaluation.result`` of OpenTelemetry's semantic conventions."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import Message
from opentelemetry.util.types import AttributeValue

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.results.kind import ResultKind
from dramaturg.results.names import abstention_name, reason_name
from dramaturg.results.row_parts import panel_provenances
from dramaturg.service.telemetry import events, tracing
from dramaturg.service.telemetry.settings import MAX_TEXT_LENGTH

RESULT = "gen_ai.evaluation.result"

_LABELS = {
    verdict_pb2.OUTCOME_PASS: "pass",
    verdict_pb2.OUTCOME_FAIL: "fail",
    verdict_pb2.OUTCOME_ABSTAIN: "abstain",
}


def emit_result(result: Message, kind: ResultKind) -> None:
    """Emits an event for each judgement of a result."""
    rows = kind.rows(result, True)
    events.emit(RESULT, ((_shared(kind.name, result, row), _own(row)) for row in rows))


def _shared(kind: str, result: Message, row: RunResult) -> Mapping[str, str | tuple[str, ...]]:
    given = [row.provenance] if row.HasField("provenance") else [*panel_provenances(result, row)]
    prompts = {prompt.sha256 for one in given for prompt in one.prompts}
    abstains = row.outcome == verdict_pb2.OUTCOME_ABSTAIN
    attributes: dict[str, str | tuple[str, ...]] = {
        "dramaturg.evaluation.kind": kind,
        "gen_ai.evaluation.name": row.measure,
        "gen_ai.evaluation.score.label": _LABELS.get(row.outcome, row.label),
        "dramaturg.judge.role": row.role,
        "dramaturg.judge.name": row.judge,
        "dramaturg.judge.version": ", ".join(dict.fromkeys(f"{one.name} {one.version}" for one in given)),
        "dramaturg.judge.prompt_sha256": tuple(sorted(prompts)),
        "dramaturg.evaluation.abstain_reason": abstention_name(row.abstain_reason) if abstains else "",
        "dramaturg.evaluation.failure_reason": reason_name(row.failure_reason) if row.failure_reason else "",
        "gen_ai.response.model": row.model,
    }
    return {name: value for name, value in attributes.items() if value}


def _own(row: RunResult) -> Mapping[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {}
    if row.HasField("value"):
        attributes["gen_ai.evaluation.score.value"] = row.value
    if row.HasField("confidence"):
        attributes["dramaturg.evaluation.confidence"] = row.confidence
    if row.candidate_id:
        attributes["dramaturg.candidate.id"] = row.candidate_id
    if tracing.contents() and (explanation := _explanation(row)):
        attributes["gen_ai.evaluation.explanation"] = explanation
    return attributes


def _explanation(row: RunResult) -> str:
    faults = (one.description or one.missing_step for one in row.findings)
    return "\n".join(filter(None, (row.rationale, *faults)))[:MAX_TEXT_LENGTH]
