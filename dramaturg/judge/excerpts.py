"""The parts of a request in a prompt, fenced and limited in size; dialogues, validated and as excerpts.

A turn of a dialogue is a user's utterance and the simulator's answer to it. Turns count from 1 (SimulBench,
section 2.4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import BaseModel, ConfigDict, Field

from dramaturg.api.common.v1 import dialogue_pb2, verdict_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask, Speaker, Utterance
from dramaturg.api.common.v1.script_pb2 import Edge, Script, Task
from dramaturg.judge.fence import Fenced, fence, fence_items, largest_share
from dramaturg.judge.steps import ParsedCandidate
from dramaturg.service.errors import Violation, invalid_fields


class ExcerptLimits(BaseModel):
    """The maximum length of each part of a request in a prompt, in characters. Longer parts are cut."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    goal: int = Field(default=10_000, ge=100)
    """The goal."""
    constraints: int = Field(default=20_000, ge=100)
    """All constraints together."""
    candidate: int = Field(default=100_000, ge=1000)
    """The candidate."""
    reference: int = Field(default=50_000, ge=1000)
    """The reference script."""
    context: int = Field(default=100_000, ge=1000)
    """All documents of the context together."""
    instructions: int = Field(default=20_000, ge=100)
    """The instructions of the system under test."""
    pool: int = Field(default=100_000, ge=1000)
    """All candidates of the pool together. Candidates that do not fit are omitted."""


@dataclass(frozen=True)
class Excerpt:
    """One or more fences of one part of a request."""

    fences: tuple[Fenced, ...]
    """The fences. Empty: the request does not have this part."""

    @cached_property
    def text(self) -> str:
        """The text in the prompt. Empty: the request does not have this part."""
        return "\n".join(one.text for one in self.fences)

    @cached_property
    def parameters(self) -> dict[str, str]:
        """The truncated and escaped lengths, for provenance. Empty: the part is shown unchanged."""
        parameters: dict[str, str] = {}
        for one in self.fences:
            name = one.label.replace(" ", "_")
            if one.cut:
                parameters[f"{name}.shown"] = f"{one.shown} of {one.total} characters"
            if one.escaped:
                parameters[f"{name}.escaped_characters"] = str(one.escaped)
        return parameters

    @cached_property
    def notice(self) -> str:
        """A description of the truncation for a rationale. Empty: nothing is truncated."""
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
    """The candidate: its steps numbered from 1 with the text around them, or its whole text."""
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


def context_excerpt(task: Task, read: ParsedCandidate, limits: ExcerptLimits) -> Excerpt:
    """The documents of the task and of the candidate, numbered from 1, each with its title and source."""
    documents = [*task.context, *read.context]
    if not documents:
        return Excerpt(())
    texts = ["\n".join(filter(None, (one.title, one.source, one.text))) for one in documents]
    return Excerpt((fence_items("context", "Document", texts, limit=limits.context),))


def instructions_excerpt(task: Task, limits: ExcerptLimits) -> Excerpt:
    """The instructions of the system under test."""
    if not task.instructions:
        return Excerpt(())
    return Excerpt((fence("instructions", task.instructions, limit=limits.instructions),))


def pooled_excerpt(number: int, read: ParsedCandidate, limits: ExcerptLimits) -> Excerpt:
    """One candidate of a pool, labelled only with its number in the prompt."""
    label = f"example {number}"
    if read.reading != verdict_pb2.READING_STEPS:
        return Excerpt((fence(label, read.text, limit=limits.pool),))
    return Excerpt((fence_items(label, "Step", read.steps, limit=limits.pool),))


def notices(shown: Mapping[str, Excerpt]) -> str:
    """A description of the truncation of several excerpts, for a rationale. Empty: nothing is truncated."""
    return " ".join(excerpt.notice for excerpt in shown.values() if excerpt.notice)


def _order(edges: Sequence[Edge], limit: int, label: str = "order of the steps") -> Sequence[Fenced]:
    """The partial order of a script, where it has edges."""
    if not edges:
        return ()
    lines = [f"step {edge.source_index + 1} before step {edge.target_index + 1}" for edge in edges]
    return (fence(label, "\n".join(lines), limit=limit),)


_SPEAKERS = {dialogue_pb2.SPEAKER_USER: "user", dialogue_pb2.SPEAKER_SIMULATOR: "simulator"}
_ALTERNATION = tuple(_SPEAKERS)


class DialogueLimits(BaseModel):
    """The maximum length of each part of a request in a prompt, in characters. Longer parts are cut."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: int = Field(default=20_000, ge=1000)
    """The description of the simulation."""
    dialogue: int = Field(default=200_000, ge=1000)
    """All utterances together. The longest are truncated to a common length."""
    response: int = Field(default=100_000, ge=1000)
    """The judged response."""


def require_turns(
    utterances: Sequence[Utterance], *, last: Speaker.ValueType, path: str = "utterances"
) -> None:
    """Validates that utterances alternate, begin with the user and end with ``last``.

    Raises:
        ServiceError: INVALID_ARGUMENT, with every utterance that is out of turn.
    """
    violations = list(_violations(utterances, last, path))
    if violations:
        raise invalid_fields(violations)


def _violations(utterances: Sequence[Utterance], last: Speaker.ValueType, path: str) -> Iterator[Violation]:
    for index, utterance in enumerate(utterances):
        expected = _ALTERNATION[index % 2]
        if utterance.speaker != expected:
            yield Violation(
                f"{path}[{index}].speaker",
                f"must be {Speaker.Name(expected)}: utterances alternate and begin with the user's",
            )
    if not utterances or _ALTERNATION[(len(utterances) - 1) % 2] != last:
        yield Violation(path, f"must end with the {_SPEAKERS[last]}'s utterance")


def task_excerpt(task: SimulationTask, utterances: Sequence[Utterance], limits: DialogueLimits) -> Excerpt:
    """The name of the simulation, and its description unless the dialogue opens with it."""
    name = fence("task", task.name, limit=limits.task)
    if utterances and utterances[0].text.strip() == task.description.strip():
        return Excerpt((name,))
    return Excerpt((name, fence("task description", task.description, limit=limits.task)))


def dialogue_excerpt(utterances: Sequence[Utterance], limits: DialogueLimits) -> Excerpt:
    """The dialogue. Each utterance has its own fence, labelled with turn and speaker."""
    share = largest_share([len(utterance.text) for utterance in utterances], limits.dialogue)
    return Excerpt(
        tuple(
            fence(f"turn {index // 2 + 1} {_SPEAKERS[utterance.speaker]}", utterance.text, limit=share)
            for index, utterance in enumerate(utterances)
        )
    )
