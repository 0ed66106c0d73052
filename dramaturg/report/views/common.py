"""What the views of all evaluations share: provenance, findings, votes, numbers."""

from __future__ import annotations

from collections.abc import Iterable

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import CompletionReference, Provenance, Usage
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Finding, Verdict
from dramaturg.api.judging.v1.pair_judge_service_pb2 import ComparePairResponse, Preference
from dramaturg.report.views.shapes import CallView, JudgementView, ProvenanceView

LONGEST_TEXT = 20_000
"""The most characters of one text that are shown; the rest is said to be cut."""

_OUTCOMES = {
    verdict_pb2.OUTCOME_PASS: "pass",
    verdict_pb2.OUTCOME_FAIL: "fail",
    verdict_pb2.OUTCOME_ABSTAIN: "abstain",
}


def cut(text: str) -> str:
    """The text, or as much of it as is shown."""
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}\n[{len(text) - LONGEST_TEXT:,} further characters are not shown]"


def number(value: float) -> str:
    """A number as it is shown: at most four digits, no needless zeros."""
    return f"{value:.4g}"


def dollars(usage: Usage) -> str:
    """The cost; a lower bound is marked, one that is not known says so."""
    if not usage.HasField("cost_usd"):
        return "not known" if usage.provider_call_count else "none"
    mark = "≥ " if usage.unpriced_call_count else ""
    return f"{mark}${usage.cost_usd:,.4f}"


def reason(abstain_reason: int) -> str:
    """Why a judgement abstained, such as "TIMED_OUT"; empty where it did not."""
    if not abstain_reason:
        return ""
    known = AbstainReason.DESCRIPTOR.values_by_number.get(abstain_reason)
    return f"REASON_{abstain_reason}" if known is None else str(known.name).removeprefix("ABSTAIN_REASON_")


def verdict(item: Verdict, judge: str = "") -> JudgementView:
    """One criterion's verdict."""
    outcome = _OUTCOMES.get(item.outcome, "abstain")
    return JudgementView(
        measure=item.criterion,
        outcome=outcome,
        said=outcome.upper(),
        reason=reason(item.abstain_reason),
        judge=judge,
        confidence=number(item.confidence) if item.HasField("confidence") else "",
        rationale=cut(item.rationale),
        findings=[finding(one) for one in item.findings],
    )


def finding(item: Finding) -> str:
    """What is wrong, in words, with the steps counted from 1."""
    steps = ", ".join(str(index + 1) for index in item.step_indices)
    parts = [f"step {steps}:" if steps else "", item.description or item.missing_step or item.constraint]
    if item.missing_step and item.missing_step != parts[-1]:
        parts.append(f"(missing: {item.missing_step})")
    if item.constraint and item.constraint != parts[1]:
        parts.append(f"(constraint: {item.constraint})")
    return cut(" ".join(part for part in parts if part))


def abstention(measure: str, abstain_reason: int, judge: str = "", rationale: str = "") -> JudgementView:
    """A judgement that was not reached."""
    return JudgementView(
        measure, "abstain", "ABSTAIN", reason(abstain_reason), judge, rationale=cut(rationale)
    )


def preference_name(preference: int) -> str:
    """Which text is preferred, such as "FIRST"."""
    known = Preference.DESCRIPTOR.values_by_number.get(preference)
    return str(known.name).removeprefix("PREFERENCE_") if known else f"PREFERENCE_{preference}"


def votes(comparison: ComparePairResponse) -> list[str]:
    """Every role's ballots, in words."""
    said = []
    for vote in comparison.votes:
        who = f"{vote.role.type}: " if vote.role.type else ""
        for ballot in vote.ballots:
            why = f" - {ballot.rationale}" if ballot.rationale else ""
            order = "second text shown first" if ballot.order == 3 else "first text shown first"
            said.append(cut(f"{who}{preference_name(ballot.preference)} ({order}){why}"))
        if vote.inconsistent:
            said.append(f"{who}the two orders disagree: counted as a tie")
    return said


def provenances(items: Iterable[Provenance]) -> list[ProvenanceView]:
    """Where judgements come from; those that say nothing are left out."""
    return [_provenance(item) for item in items if item.ByteSize()]


def _provenance(item: Provenance) -> ProvenanceView:
    own = f"{item.name} {item.version}".strip()
    registered = item.registered_name
    return ProvenanceView(
        judge=f"{registered} ({own})" if registered and registered != item.name else own,
        prompts=[f"{prompt.name} {prompt.sha256[:12]}" for prompt in item.prompts],
        parameters=sorted(item.parameters.items()),
        calls=[_call(completion) for completion in item.completions],
    )


def _call(item: CompletionReference) -> CallView:
    usage = item.usage
    tokens = f"{usage.prompt_token_count:,} + {usage.completion_token_count:,}"
    return CallView(
        model=item.answered_model or item.requested_model,
        tokens="" if item.cached else tokens,
        cost="" if item.cached else dollars(usage),
        latency=f"{item.latency.ToTimedelta().total_seconds():.2f} s" if item.HasField("latency") else "",
        cached=item.cached,
        raw_text=cut(item.raw_text),
    )
