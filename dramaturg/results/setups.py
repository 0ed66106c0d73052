"""The judges of results, and what differs between those of two results.

Each comparison of results, as a table, as a page or by RunService, takes the differences from here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.evaluation.v1.summary_pb2 import JudgeFigures
from dramaturg.results.kind import JudgeAnswer

AnyValue = TypeVar("AnyValue", bound=Any)


class Setup(NamedTuple):
    """A judge as its answers state it."""

    role: str
    judge: str
    """The registered name."""
    name: str
    """Its own name. Empty: the answer states nothing, e.g. that of a judge that failed."""
    version: str
    model: str
    prompts: tuple[tuple[str, str], ...]
    """The names and SHA-256 hashes of its prompts, sorted."""


def setup_of(answer: JudgeAnswer) -> Setup:
    """The judge of an answer."""
    made = answer.provenance
    prompts = tuple(sorted((prompt.name, prompt.sha256) for prompt in made.prompts))
    return Setup(answer.role, answer.judge, made.name, made.version, _model(made), prompts)


def setups_of(figures: Iterable[JudgeFigures]) -> Collection[Setup]:
    """The judges of a summary."""
    return {
        Setup(one.role, one.judge, one.name, one.version, one.model, tuple(sorted(one.prompts.items())))
        for one in figures
    }


def setup_changes(setups: Mapping[str, Collection[Setup]]) -> list[str]:
    """What differs from the judges of the first result, as sentences without an end. Empty: nothing.

    Args:
        setups: The judges of each result by its name, the baseline first.
    """
    first, *others = setups
    return [f"{name}: {change}" for name in others for change in _changes(setups[first], setups[name])]


def _model(made: Provenance) -> str:
    for completion in made.completions:
        return completion.answered_model or completion.requested_model
    return ""


def _changes(before: Collection[Setup], after: Collection[Setup]) -> Iterator[str]:
    for role in sorted({one.role for one in (*before, *after)}):
        judges = [sorted({one.judge for one in some if one.role == role}) for some in (before, after)]
        if judges[0] != judges[1]:
            yield f"the judges of {role} are {_listed(judges[1])}, not {_listed(judges[0])}"
        for judge in judges[0]:
            own = [[one for one in some if one[:2] == (role, judge) and one.name] for some in (before, after)]
            # Answers that state nothing, e.g. of a judge that failed, do not differ.
            if all(own) and (facts := list(_facts(*own))):
                yield f"the judge {judge!r} of {role} has {'; '.join(facts)}"


def _facts(before: Collection[Setup], after: Collection[Setup]) -> Iterator[str]:
    versions = [_stated(f"{one.name} {one.version}".strip() for one in some) for some in (before, after)]
    models = [_stated(one.model for one in some) for some in (before, after)]
    for fact, (old, new) in (("the version", versions), ("the model", models)):
        if old != new:
            yield f"{fact} {_listed(new)}, not {_listed(old)}"
    prompts = [_stated(prompt for one in some for prompt in one.prompts) for some in (before, after)]
    if changed := sorted({name for name, _ in set(prompts[0]) ^ set(prompts[1])}):
        yield f"other prompts ({', '.join(changed)})"


def _stated(values: Iterable[AnyValue]) -> list[AnyValue]:
    """The values that are stated: an answer without a completion states no model."""
    return sorted({value for value in values if value})


def _listed(values: Collection[str]) -> str:
    return " and ".join(map(repr, values)) or "none"
