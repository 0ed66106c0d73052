"""The view model of samples. Texts are plain; the page shows them as text."""

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
    """The measure, named as in ``RunResult.measure`` where the page's tables link to it."""
    outcome: str
    """One of "pass", "fail", "abstain" and "number"; determines the badge's colour."""
    label: str
    """The badge's text, e.g. "PASS", "7" or "OPTION_1"."""
    reason: str = ""
    """The abstain reason, e.g. "TIMED_OUT"; empty if it did not abstain."""
    judge: str = ""
    confidence: str = ""
    """That of the judge, and what its repeats measure, e.g. "0.8, 0.6 measured by repeats"."""
    rationale: str = ""
    findings: Sequence[str] = ()


@dataclass(frozen=True)
class StepView:
    """One step of a script, or one utterance of a dialogue."""

    text: str
    faults: Sequence[str] = ()
    """The findings that refer to the step, as text."""
    marks: Sequence[tuple[int, int, str]] = ()
    """The words that findings rest on: first and last code point, the last excluded, and the finding."""
    mark: str = ""
    """A label that marks the step, e.g. "challenging turn"; empty: none."""
    images: Sequence[str] = ()
    """The images of a turn, as URLs that hold them (RFC 2397)."""


@dataclass(frozen=True)
class EdgeView:
    """An edge of a graph."""

    source: str
    target: str
    state: str = ""
    """"matched", "missing" or "extra" against a reference; empty: not compared."""


@dataclass(frozen=True)
class GraphView:
    """A graph of events, drawn in layers."""

    events: Sequence[tuple[str, str]]
    """Id and text of each event."""
    edges: Sequence[EdgeView]


@dataclass(frozen=True)
class SubjectView:
    """The output of one model and its judgements."""

    title: str
    model: str
    steps: Sequence[StepView] = ()
    text: str = ""
    marks: Sequence[tuple[int, int, str]] = ()
    """The words of the text that findings rest on, as in ``StepView``."""
    notes: Sequence[str] = ()
    judgements: Sequence[JudgementView] = ()
    provenances: Sequence[ProvenanceView] = ()
    graph: GraphView | None = None
    tags: Sequence[tuple[str, str]] = ()
    """Tags of the subject alone, e.g. ("steps", "8")."""


@dataclass(frozen=True)
class Block:
    """A text of the sample itself, shown beside the subjects, e.g. the gold answer."""

    title: str
    text: str = ""
    steps: Sequence[StepView] = ()
    open: bool = False
    graph: GraphView | None = None


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
    models: Sequence[str] = ()
    """The models of subjects that name none, e.g. the two of a comparison."""
    disagreement: str = ""
    """What judges, orders or people disagree on; empty: they agree."""
    filters: Sequence[tuple[str, str]] = ()
    """Further tags that the page's tables link to, not shown, e.g. the task of a dialogue."""
    failed: bool = False
    """Whether the sample has no result."""
