"""The view of a sample of any kind, and what the views of all kinds share: provenance, findings, votes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import CompletionReference, Provenance
from dramaturg.api.common.v1.verdict_pb2 import Finding, Verdict
from dramaturg.api.evaluation.v1.run_pb2 import SAMPLE_STATE_FAILED, RunSample
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairResponse, Preference
from dramaturg.api.judging.v1.rating_judge_service_pb2 import Rating
from dramaturg.kinds import sample_kind
from dramaturg.report.sample_view import CallView, JudgementView, ProvenanceView, SampleView
from dramaturg.results.coverage import status_name
from dramaturg.results.names import reason_name, severity_name, value_name
from dramaturg.tables.model import format_cost


def view(sample: RunSample) -> SampleView:
    """The view of a sample. A sample without a result is shown with its error."""
    kind = sample_kind(sample)
    if kind is not None:
        shown = kind.view(sample.index, getattr(sample, kind.results.name))
        return replace(shown, filters=[*shown.filters, *sample.tags.items()])
    error = sample.error
    where = f"{error.field}: " if error.field else ""
    return SampleView(
        index=sample.index,
        title=sample.sample_id or f"line {sample.line}",
        sample_id=sample.sample_id,
        error=f"{status_name(error.code)}: {where}{error.message}" if error.code else "no result",
        tags=sorted(sample.tags.items()),
        failed=sample.state == SAMPLE_STATE_FAILED,
    )


MAX_TEXT_LENGTH = 20_000
"""Longer texts are truncated, with a note."""

_SCORED = verdict_pb2.OUTCOME_SCORED

_OUTCOMES = {
    verdict_pb2.OUTCOME_PASS: "pass",
    verdict_pb2.OUTCOME_FAIL: "fail",
    verdict_pb2.OUTCOME_ABSTAIN: "abstain",
}


class Assessed(Protocol):
    """A candidate or text with the assessments of its judges."""

    @property
    def assessments(self) -> Iterable[CandidateAssessment]:
        """The assessments."""


def truncate(text: str) -> str:
    """Truncates a text to ``MAX_TEXT_LENGTH`` characters and notes how many are left out."""
    if len(text) <= MAX_TEXT_LENGTH:
        return text
    return f"{text[:MAX_TEXT_LENGTH]}\n[{len(text) - MAX_TEXT_LENGTH:,} more characters not shown]"


def number(value: float) -> str:
    """Formats a number with at most four significant digits."""
    return f"{value:.4g}"


def verdict(item: Verdict, judge: str = "", noun: str = "step") -> JudgementView:
    """The view of one criterion's verdict; its findings call steps what the noun says."""
    outcome = _OUTCOMES.get(item.outcome, "abstain")
    return JudgementView(
        measure=item.criterion,
        outcome=outcome,
        label=outcome.upper(),
        reason=reason_name(item.abstain_reason),
        judge=judge,
        confidence=confidence(item),
        rationale=truncate(item.rationale),
        findings=[finding(one, noun) for one in item.findings],
    )


def confidence(item: Verdict | Rating | ComparePairResponse) -> str:
    """The confidence of a judge, and how far its repeats agree. Empty: neither is known."""
    parts = []
    if isinstance(item, Verdict) and item.HasField("confidence"):
        parts.append(number(item.confidence))
    if item.HasField("measured_confidence"):
        parts.append(f"{number(item.measured_confidence)} measured by repeats")
    return ", ".join(parts)


def finding(item: Finding, noun: str = "step") -> str:
    """A finding as text; steps, or what the noun says they are, are numbered from 1."""
    steps = ", ".join(str(index + 1) for index in item.step_indices)
    parts = [f"{noun} {steps}:" if steps else "", item.description or item.missing_step or item.constraint]
    if item.missing_step and item.missing_step != parts[-1]:
        parts.append(f"(missing: {item.missing_step})")
    if item.constraint and item.constraint != parts[1]:
        parts.append(f"(constraint: {item.constraint})")
    if item.severity:
        parts.append(f"({severity_name(item.severity)})")
    parts += [f'"{one.quote}"' + ("" if one.found else " (not found there)") for one in item.spans]
    return truncate(" ".join(part for part in parts if part))


def marks(verdicts: Iterable[Verdict], part: str, index: int = 0) -> list[tuple[int, int, str]]:
    """The words of one text that findings rest on, in order, without overlaps.

    Args:
        verdicts: The verdicts with the findings.
        part: The part (``dramaturg.judge.quotes``).
        index: Which text of the part.
    """
    found = sorted(
        (span.start, span.end, truncate(f"{item.criterion}: {one.description}".rstrip(": ")))
        for item in verdicts
        for one in item.findings
        for span in one.spans
        if span.found
        and (span.part, span.index) == (part, index)
        and span.start < span.end <= MAX_TEXT_LENGTH
    )
    kept: list[tuple[int, int, str]] = []
    for start, end, text in found:
        if not kept or start >= kept[-1][1]:
            kept.append((start, end, text))
    return kept


def abstention(measure: str, abstain_reason: int, judge: str = "", rationale: str = "") -> JudgementView:
    """The view of a judgement that abstained."""
    return JudgementView(
        measure, "abstain", "ABSTAIN", reason_name(abstain_reason), judge, rationale=truncate(rationale)
    )


def votes(comparison: ComparePairResponse) -> list[str]:
    """The ballots of every role as text."""
    lines = []
    for vote in comparison.votes:
        name = f"{vote.role.type}: " if vote.role.type else ""
        for ballot in vote.ballots:
            rationale = f" - {ballot.rationale}" if ballot.rationale else ""
            order = "second text shown first" if ballot.order == 3 else "first text shown first"
            lines.append(truncate(f"{name}{value_name(Preference, ballot.preference)} ({order}){rationale}"))
        if vote.inconsistent:
            lines.append(f"{name}the two orders disagree: counted as a tie")
    return lines


def abbreviated(digest: str) -> str:
    """The beginning of a hash, as reports show it."""
    return digest[:12]


def provenances(items: Iterable[Provenance]) -> list[ProvenanceView]:
    """The views of provenances; empty ones are left out."""
    return [_provenance(item) for item in items if item.ByteSize()]


def _provenance(item: Provenance) -> ProvenanceView:
    own = f"{item.name} {item.version}".strip()
    registered = item.registered_name
    return ProvenanceView(
        judge=f"{registered} ({own})" if registered and registered != item.name else own,
        prompts=[f"{prompt.name} {abbreviated(prompt.sha256)}" for prompt in item.prompts],
        parameters=sorted(item.parameters.items()),
        calls=[_call(completion) for completion in item.completions],
    )


def _call(item: CompletionReference) -> CallView:
    usage = item.usage
    tokens = f"{usage.prompt_token_count:,} + {usage.completion_token_count:,}"
    return CallView(
        model=item.answered_model or item.requested_model,
        tokens="" if item.cached else tokens,
        cost="" if item.cached else format_cost(usage),
        latency=f"{item.latency.ToTimedelta().total_seconds():.2f} s" if item.HasField("latency") else "",
        cached=item.cached,
        raw_text=truncate(item.raw_text),
    )


def panel_disagreement(items: Iterable[Assessed]) -> str:
    """The criteria on which the judges of a panel gave different outcomes or scores; empty: none."""
    found: dict[str, None] = {}
    for item in items:
        given: defaultdict[str, set[tuple[int, float]]] = defaultdict(set)
        for assessed in item.assessments:
            for one in assessed.assessment.verdicts:
                given[one.criterion].add((one.outcome, one.score if one.outcome == _SCORED else 0.0))
        found.update(dict.fromkeys(criterion for criterion, some in given.items() if len(some) > 1))
    return f"judges differ on {', '.join(found)}" if found else ""
