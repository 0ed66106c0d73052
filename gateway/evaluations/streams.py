"""Runs an evaluation, streams its events, and counts calls to judges and judgements.

Verdicts are also events ``gen_ai.evaluation.result`` of OpenTelemetry's semantic conventions.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter as CounterDict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from google.protobuf.message import Message
from opentelemetry.util.types import AttributeValue

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.error_reason_pb2 import ErrorReason
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Outcome
from dramaturg.api.evaluation.v1.judge_selection_pb2 import EvaluationAccepted
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.kinds import find_kind
from dramaturg.kinds.dialogues import is_panel_mean
from dramaturg.results import names
from dramaturg.results.kind import judges_of_verdicts
from dramaturg.results.names import abstention_name
from dramaturg.service import context
from dramaturg.service.telemetry import instruments, tracing
from dramaturg.service.telemetry.instruments import Counter, Histogram
from dramaturg.service.telemetry.settings import MAX_TEXT_LENGTH
from gateway.evaluations.judge_answers import limit_result
from gateway.evaluations.scope import EvaluationContext, EvaluationScope, waits_for_batch

RESULT = "gen_ai.evaluation.result"

_LABELS = {
    verdict_pb2.OUTCOME_PASS: "pass",
    verdict_pb2.OUTCOME_FAIL: "fail",
    verdict_pb2.OUTCOME_ABSTAIN: "abstain",
}
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


def emit_result(result: Message, kind: str, rows: Iterable[RunResult]) -> None:
    """Emits an event for each judgement of a result.

    Args:
        result: The result.
        kind: The name of its kind.
        rows: Its rows.
    """
    judges = judges_of_verdicts(result, _described)
    tracing.emit(RESULT, ((_shared(kind, judges, row), _own(row)) for row in rows))


def _described(provenance: Provenance) -> tuple[str, ...]:
    return provenance.name, provenance.version, *(prompt.sha256 for prompt in provenance.prompts)


def _shared(
    kind: str, judges: Mapping[tuple[str, str], Sequence[tuple[str, ...]]], row: RunResult
) -> Mapping[str, str | tuple[str, ...]]:
    given = judges.get((row.candidate_id, row.measure), ())
    return _attributes(
        kind,
        row.measure,
        _LABELS.get(row.outcome, row.label),
        row.role,
        row.judge,
        (_described(row.provenance),) if row.HasField("provenance") else tuple(given),
        row.abstain_reason if row.outcome == verdict_pb2.OUTCOME_ABSTAIN else None,
        row.failure_reason,
        row.model,
    )


@lru_cache(2048)
def _attributes(
    kind: str,
    measure: str,
    label: str,
    role: str,
    judge: str,
    given: tuple[tuple[str, ...], ...],
    abstain_reason: AbstainReason.ValueType | None,
    failure_reason: ErrorReason.ValueType,
    model: str,
) -> Mapping[str, str | tuple[str, ...]]:
    """What the judgements of many results have alike. ``given``: name, version and prompts of each judge."""
    versions = dict.fromkeys(f"{name} {version}" for name, version, *_ in given)
    attributes: dict[str, str | tuple[str, ...]] = {
        "dramaturg.evaluation.kind": kind,
        "gen_ai.evaluation.name": measure,
        "gen_ai.evaluation.score.label": label,
        "dramaturg.judge.role": role,
        "dramaturg.judge.name": judge,
        "dramaturg.judge.version": ", ".join(versions),
        "dramaturg.judge.prompt_sha256": tuple(sorted({one for _, _, *prompts in given for one in prompts})),
        "dramaturg.evaluation.abstain_reason": ""
        if abstain_reason is None
        else abstention_name(abstain_reason),
        "dramaturg.evaluation.failure_reason": names.reason_name(failure_reason) if failure_reason else "",
        "gen_ai.response.model": model,
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
    evaluation = _NAMES.get(result.DESCRIPTOR.full_name)
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


class Emit(Protocol):
    """Publishes one event without waiting."""

    def __call__(self, **event: Message) -> None:
        """Publishes the event under its field name in the stream's message."""


class Plan(Protocol):
    """What a valid request asks for, and of which judges."""

    def accepted(self) -> EvaluationAccepted:
        """The first event of the evaluation."""


AnyPlan = TypeVar("AnyPlan", bound=Plan)


class Evaluation(ABC, Generic[AnyPlan]):
    """A planned evaluation. A subclass implements ``work``; this class streams and counts it.

    Args:
        plan: The plan.
        context: The judges of the gateway.
        scope: What the calls of the evaluation share.
    """

    response_type: ClassVar[type[Any]]
    """The message of the method's stream, which has a member for each event."""

    def __init__(self, plan: AnyPlan, context: EvaluationContext, scope: EvaluationScope) -> None:
        self._plan = plan
        self._context = context
        self._scope = scope

    @abstractmethod
    async def work(self, emit: Emit) -> Any:
        """Runs the evaluation and returns its result.

        Args:
            emit: Publishes the events before the result.
        """

    @staticmethod
    def judgements(result: Any, rows: Iterable[RunResult]) -> Iterable[Judgement]:
        """The judgements of a result that metrics count: those of its rows that are no means of panels."""
        del result
        for row in rows:
            if not is_panel_mean(row):
                yield Judgement(row.role, row.judge, row.outcome, row.abstain_reason)

    async def result(self) -> Any:
        """Runs the evaluation and returns its result. Cancellation cancels the calls to judges."""
        return self._counted(await self.work(_discard))

    async def events(self) -> AsyncGenerator[Any]:
        """Yields the accepted plan, then each event as it occurs, then the result.

        Closing the generator, or cancelling its consumer, cancels the calls to judges.

        Raises:
            Exception: The error of ``work``, after the events before it.
        """
        response = self.response_type
        yield response(accepted=self._plan.accepted())
        events: asyncio.Queue[Any] = asyncio.Queue()
        task = asyncio.create_task(self.work(lambda **event: events.put_nowait(response(**event))))
        # Also after a failure, so that consumers waiting for an event receive it.
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            yield response(result=self._counted(await task))
        finally:
            task.cancel()
            await asyncio.wait([task])

    def _counted(self, result: Any) -> Any:
        served = context.current()
        if served is not None and served.batch_until is not None and waits_for_batch(result):
            return result  # it is evaluated again
        limit_result(result)
        counting, emitting = instruments.counting(), tracing.emitting()
        kind = find_kind(_NAMES.get(result.DESCRIPTOR.full_name)) if counting or emitting else None
        if kind is None:
            return result
        rows: Iterable[RunResult] = kind.results.rows(result, tracing.contents())
        if emitting:
            rows = tuple(rows)  # read twice
        if counting:
            count_result(result, self.judgements(result, rows))
        if emitting:
            emit_result(result, kind.results.name, rows)
        return result


def _discard(**event: Message) -> None:
    del event
