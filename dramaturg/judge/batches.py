"""Candidates as passed to judges, and their conversion from and to messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Task
from dramaturg.api.judging.v1.judge_service_pb2 import (
    CriterionRule,
    CriterionScale,
    CriterionUnit,
    JudgeCandidate,
    JudgeRequest,
)
from dramaturg.judge.conversations import final_answer
from dramaturg.judge.steps import ParsedCandidate, parse_candidate


@dataclass(frozen=True, eq=False)
class JudgeBatch:
    """The common part of all candidates of a request."""

    task: Task
    """The task."""
    reference: Script
    """The reference script. Without steps: there is no reference."""
    criteria: tuple[str, ...]
    """The criteria to judge, in the order of the verdicts."""
    definitions: Mapping[str, str]
    """The definitions of criteria that the request defines, by id."""
    scales: Mapping[str, CriterionScale]
    """The scales of criteria that are scored (``verdicts.scored``), by id."""
    options: JudgeOptions
    """The model and its sampling."""
    candidates: tuple[ParsedCandidate, ...]
    """All candidates of the request, empty ones included, then those of its pool."""
    rules: Mapping[str, CriterionRule] = field(default_factory=dict)
    """The rules of criteria that have one, by id."""
    units: Mapping[str, CriterionUnit.ValueType] = field(default_factory=dict)
    """What criteria judge one by one (``verdicts.of_units``), by id."""


@dataclass(frozen=True, eq=False)
class JudgeItem:
    """One candidate to judge; never an empty one."""

    batch: JudgeBatch
    """The common part of all candidates of the request."""
    candidate: ParsedCandidate
    """The candidate: its id, text and steps."""

    @property
    def task(self) -> Task:
        """The task."""
        return self.batch.task

    @property
    def reference(self) -> Script:
        """The reference script. Without steps: there is no reference."""
        return self.batch.reference

    @property
    def criteria(self) -> tuple[str, ...]:
        """The criteria to judge, in the order of the verdicts."""
        return self.batch.criteria

    @property
    def definitions(self) -> Mapping[str, str]:
        """The definitions of criteria that the request defines, by id."""
        return self.batch.definitions

    @property
    def scales(self) -> Mapping[str, CriterionScale]:
        """The scales of criteria that are scored (``verdicts.scored``), by id."""
        return self.batch.scales

    @property
    def rules(self) -> Mapping[str, CriterionRule]:
        """The rules of criteria that have one, by id."""
        return self.batch.rules

    @property
    def units(self) -> Mapping[str, CriterionUnit.ValueType]:
        """What criteria judge one by one (``verdicts.of_units``), by id."""
        return self.batch.units

    @property
    def options(self) -> JudgeOptions:
        """The model and its sampling."""
        return self.batch.options

    @property
    def pool(self) -> Sequence[ParsedCandidate]:
        """The other candidates of the task, empty ones included."""
        return [other for other in self.batch.candidates if other is not self.candidate]


def decode_batch(request: JudgeRequest, criteria: Sequence[str]) -> JudgeBatch:
    """Decodes a request for judgements on these criteria."""
    return JudgeBatch(
        task=request.task,
        reference=request.reference,
        criteria=tuple(criteria),
        definitions={one.id: one.definition for one in request.criteria if one.definition},
        scales={one.id: one.scale for one in request.criteria if one.HasField("scale")},
        options=request.options,
        candidates=tuple(map(decode_candidate, (*request.candidates, *request.pool))),
        rules={one.id: one.rule for one in request.criteria if one.HasField("rule")},
        units={one.id: one.each for one in request.criteria if one.each},
    )


def decode_candidate(message: JudgeCandidate) -> ParsedCandidate:
    """Decodes a candidate. A text without reading or steps is parsed here."""
    steps = tuple([step.text for step in message.script.steps])
    if message.reading == verdict_pb2.READING_STEPS and steps:
        return ParsedCandidate(
            message.id,
            steps,
            message.text or "\n".join(steps),
            message.reading,
            message.preamble,
            message.notes,
            message.script.edges,
            tuple(message.context),
        )
    if message.HasField("conversation"):
        return ParsedCandidate(
            message.id,
            (),
            final_answer(message.conversation),
            verdict_pb2.READING_TEXT,
            context=tuple(message.context),
            conversation=message.conversation,
        )
    if message.reading in (verdict_pb2.READING_TEXT, verdict_pb2.READING_EMPTY):
        return ParsedCandidate(message.id, (), message.text, message.reading, context=tuple(message.context))
    written = (
        Candidate(id=message.id, script=message.script)
        if steps
        else Candidate(id=message.id, text=message.text)
    )
    return replace(parse_candidate(written), context=tuple(message.context))


def encode_candidate(candidate: Candidate, parsed: ParsedCandidate) -> JudgeCandidate:
    """Encodes a candidate for judges, without the model that wrote it.

    Args:
        candidate: The candidate.
        parsed: The result of ``parse_candidate`` for it.
    """
    message = JudgeCandidate(
        id=candidate.id,
        text=candidate.text,
        reading=parsed.reading,
        preamble=parsed.preamble,
        notes=parsed.notes,
    )
    if parsed.reading == verdict_pb2.READING_STEPS:
        if candidate.WhichOneof("content") == "script":
            message.script.CopyFrom(candidate.script)
        else:
            for step in parsed.steps:
                message.script.steps.add(text=step)
    return message
