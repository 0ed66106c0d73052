"""The shape in which every sample is shown. Texts are plain: the template escapes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CallView:
    """One model call of a judgement."""

    model: str
    """The model that answered, else the one asked for."""
    tokens: str
    cost: str
    latency: str
    cached: bool
    raw_text: str


@dataclass(frozen=True)
class ProvenanceView:
    """Where a judgement comes from."""

    judge: str
    """Its registered name, else its own, with its version."""
    prompts: Sequence[str]
    """Name and the beginning of its hash, each."""
    parameters: Sequence[tuple[str, str]]
    calls: Sequence[CallView]


@dataclass(frozen=True)
class JudgementView:
    """One judgement of a subject."""

    measure: str
    outcome: str
    """"pass", "fail", "abstain" or "number"; the colour of its badge."""
    said: str
    """What the badge reads, such as "PASS", "7" or "OPTION_1"."""
    reason: str = ""
    """Why it abstained, such as "TIMED_OUT"."""
    judge: str = ""
    confidence: str = ""
    rationale: str = ""
    findings: Sequence[str] = ()


@dataclass(frozen=True)
class StepView:
    """One step of a script."""

    text: str
    faults: Sequence[str] = ()
    """What is wrong with it, in words. Empty: nothing was found."""


@dataclass(frozen=True)
class SubjectView:
    """What one model did, and how it was judged."""

    title: str
    model: str
    steps: Sequence[StepView] = ()
    text: str = ""
    notes: Sequence[str] = ()
    judgements: Sequence[JudgementView] = ()
    provenances: Sequence[ProvenanceView] = ()

    @property
    def failures(self) -> int:
        """How many judgements are FAIL."""
        return sum(judgement.outcome == "fail" for judgement in self.judgements)

    @property
    def abstentions(self) -> int:
        """How many judgements abstained."""
        return sum(judgement.outcome == "abstain" for judgement in self.judgements)


@dataclass(frozen=True)
class Block:
    """A text that belongs to the sample as a whole, such as the source of two summaries."""

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
    """Short facts, such as ("topic", "Health")."""
    blocks: Sequence[Block] = ()
    subjects: Sequence[SubjectView] = ()
    error: str = ""
    """Why there is no result."""
    tags: Sequence[tuple[str, str]] = field(default=())
