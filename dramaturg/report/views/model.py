"""The view model of samples. Texts are plain; the template escapes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CallView:
    """One model call of a judgement."""

    model: str
    """The model that answered, else the requested one."""
    tokens: str
    cost: str
    latency: str
    cached: bool
    raw_text: str


@dataclass(frozen=True)
class ProvenanceView:
    """The provenance of a judgement."""

    judge: str
    """The registered name if there is one, with the judge's own name and version."""
    prompts: Sequence[str]
    """Name and abbreviated hash of each prompt."""
    parameters: Sequence[tuple[str, str]]
    calls: Sequence[CallView]


@dataclass(frozen=True)
class JudgementView:
    """One judgement of a subject."""

    measure: str
    outcome: str
    """One of "pass", "fail", "abstain" and "number"; determines the badge's colour."""
    label: str
    """The badge's text, e.g. "PASS", "7" or "OPTION_1"."""
    reason: str = ""
    """The abstain reason, e.g. "TIMED_OUT"; empty if it did not abstain."""
    judge: str = ""
    confidence: str = ""
    rationale: str = ""
    findings: Sequence[str] = ()


@dataclass(frozen=True)
class StepView:
    """One step of a script."""

    text: str
    faults: Sequence[str] = ()
    """The findings that refer to the step, as text."""


@dataclass(frozen=True)
class SubjectView:
    """The output of one model and its judgements."""

    title: str
    model: str
    steps: Sequence[StepView] = ()
    text: str = ""
    notes: Sequence[str] = ()
    judgements: Sequence[JudgementView] = ()
    provenances: Sequence[ProvenanceView] = ()

    @property
    def failures(self) -> int:
        """The number of FAIL judgements."""
        return sum(judgement.outcome == "fail" for judgement in self.judgements)

    @property
    def abstentions(self) -> int:
        """The number of abstentions."""
        return sum(judgement.outcome == "abstain" for judgement in self.judgements)


@dataclass(frozen=True)
class Block:
    """A text of the sample itself, e.g. the source of two summaries."""

    title: str
    text: str = ""
    steps: Sequence[StepView] = ()
    open: bool = False


@dataclass(frozen=True)
class SampleView:
    """One sample."""

    index: int
    title: str
    sample_id: str = ""
    facts: Sequence[tuple[str, str]] = ()
    """Name and value pairs, e.g. ("topic", "Health")."""
    blocks: Sequence[Block] = ()
    subjects: Sequence[SubjectView] = ()
    error: str = ""
    """The error of a failed sample; empty otherwise."""
    tags: Sequence[tuple[str, str]] = field(default=())
