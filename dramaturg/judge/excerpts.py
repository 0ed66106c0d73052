"""The parts of a request that a judge is shown, fenced and limited in size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Edge, Script, Task
from dramaturg.judge.fence import Fenced, fence, fence_items
from dramaturg.judge.steps import ParsedCandidate

NONE = "(none)"
"""What stands in a prompt in place of a part that the request does not have."""


class ExcerptLimits(BaseModel):
    """How much is shown of each part of a request, in characters. What is longer is cut, visibly."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    goal: int = Field(default=10_000, ge=100)
    """Of the goal."""
    constraints: int = Field(default=20_000, ge=100)
    """Of all constraints together."""
    candidate: int = Field(default=100_000, ge=1000)
    """Of the candidate."""
    reference: int = Field(default=50_000, ge=1000)
    """Of the reference script."""
    pool: int = Field(default=100_000, ge=1000)
    """Of all candidates of the pool together; those that do not fit are left out whole."""


@dataclass(frozen=True)
class Excerpt:
    """One or more fences that belong together."""

    fences: tuple[Fenced, ...]
    """The fences. None: the request does not have this part."""

    @property
    def text(self) -> str:
        """What stands in the prompt."""
        return "\n".join(one.text for one in self.fences) or NONE

    @property
    def parameters(self) -> dict[str, str]:
        """What was cut or escaped, for provenance. Empty: everything is shown as it came."""
        parameters: dict[str, str] = {}
        for one in self.fences:
            name = one.label.replace(" ", "_")
            if one.cut:
                parameters[f"{name}.shown"] = f"{one.shown} of {one.total} characters"
            if one.escaped:
                parameters[f"{name}.escaped_characters"] = str(one.escaped)
        return parameters

    @property
    def notice(self) -> str:
        """What was cut, in words for a rationale. Empty: nothing."""
        return " ".join(
            f"(Only {one.shown} of the {one.total} characters of the {one.label} were shown to the judge.)"
            for one in self.fences
            if one.cut
        )


def goal_excerpt(task: Task, limits: ExcerptLimits) -> Excerpt:
    """The goal."""
    return Excerpt((fence("goal", task.goal, limit=limits.goal),))


def constraints_excerpt(task: Task, limits: ExcerptLimits) -> Excerpt:
    """The constraints, numbered from 1."""
    if not task.constraints:
        return Excerpt(())
    items = fence_items("constraints", "Constraint", task.constraints, limit=limits.constraints)
    return Excerpt((items,))


def candidate_excerpt(read: ParsedCandidate, limits: ExcerptLimits) -> Excerpt:
    """The candidate: its steps numbered from 1 and what stands around them, or its text."""
    if read.reading != verdict_pb2.READING_STEPS:
        return Excerpt((fence("candidate", read.text, limit=limits.candidate),))
    around = [
        fence(label, text, limit=limits.candidate // 4)
        for label, text in (("text before the steps", read.preamble), ("text after the steps", read.notes))
        if text
    ]
    steps = fence_items("candidate", "Step", read.steps, limit=limits.candidate)
    return Excerpt((steps, *_order(read.edges, limits.candidate), *around))


def reference_excerpt(reference: Script, limits: ExcerptLimits) -> Excerpt:
    """The reference script, its steps numbered from 1."""
    steps = [step.text for step in reference.steps]
    if not steps:
        return Excerpt(())
    fenced = fence_items("reference", "Step", steps, limit=limits.reference)
    return Excerpt((fenced, *_order(reference.edges, limits.reference, "order of the reference")))


def pooled_excerpt(number: int, read: ParsedCandidate, limits: ExcerptLimits) -> Excerpt:
    """One candidate of a pool, by its number in the prompt alone."""
    label = f"example {number}"
    if read.reading != verdict_pb2.READING_STEPS:
        return Excerpt((fence(label, read.text, limit=limits.pool),))
    return Excerpt((fence_items(label, "Step", read.steps, limit=limits.pool),))


def notices(shown: Mapping[str, Excerpt]) -> str:
    """What was cut of several excerpts, in words for a rationale. Empty: nothing."""
    return " ".join(excerpt.notice for excerpt in shown.values() if excerpt.notice)


def _order(edges: Sequence[Edge], limit: int, label: str = "order of the steps") -> Sequence[Fenced]:
    """The partial order of a script that states one."""
    if not edges:
        return ()
    lines = [f"step {edge.source_index + 1} before step {edge.target_index + 1}" for edge in edges]
    return (fence(label, "\n".join(lines), limit=limit),)
