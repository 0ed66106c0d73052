"""Puts one fault into a script by rule, without a model.

A rule knows words and places, not meaning: a step that it deletes may not be needed, and two that it swaps
may go in either order. What it detects is a lower bound (docs/perturbations.md).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from dramaturg.perturbations.categories import Category
from dramaturg.perturbations.changes import Change, Placed, find_changes, untouched
from dramaturg.perturbations.rewording import reword

_WITHOUT = re.compile(
    r"(?:(?:but|and)\s+)?(?:without(?:\s+(?:using|any))?|with\s+no|no|not\s+using|avoid(?:ing)?|never)\s+",
    re.IGNORECASE,
)


class NotApplicableError(Exception):
    """A rule that cannot be applied to a script; the message says why."""


@dataclass(frozen=True)
class Material:
    """A script and what rules may take from around it."""

    steps: Sequence[str]
    """Its steps."""
    constraints: Sequence[str] = ()
    """The constraints of its task."""
    strangers: Sequence[Sequence[str]] = ()
    """The steps of scripts for other goals."""


@dataclass(frozen=True)
class Rule:
    """One way to put a fault into a script."""

    category: Category
    """What goes wrong."""
    place: Callable[[Material, random.Random], Sequence[Placed]]
    """Makes the perturbed steps, or raises ``NotApplicableError``."""


@dataclass(frozen=True)
class Perturbed:
    """A script with a fault."""

    steps: Sequence[str]
    """Its steps."""
    changes: Sequence[Change]
    """What was changed."""


def perturb(operation: str, material: Material, draw: random.Random) -> Perturbed:
    """Puts a fault into a script.

    Args:
        operation: The name of the rule, one of ``RULES``.
        material: The script, of one step or more, none blank.
        draw: Draws what the rule leaves open.

    Raises:
        NotApplicableError: The rule cannot be applied, or would change nothing.
    """
    placed = RULES[operation].place(material, draw)
    steps = [step.text for step in placed]
    if steps == list(material.steps):
        raise NotApplicableError("the steps changed say the same")
    return Perturbed(steps, find_changes(material.steps, placed))


def _delete(material: Material, draw: random.Random) -> Sequence[Placed]:
    """Deletes one step."""
    steps = _at_least(2, material.steps)
    del steps[draw.randrange(len(steps))]
    return steps


def _insert(material: Material, draw: random.Random) -> Sequence[Placed]:
    """Inserts a step of another goal's script."""
    steps = untouched(material.steps)
    steps.insert(draw.randint(0, len(steps)), Placed(draw.choice(_stranger(material, draw))))
    return steps


def _repeat(material: Material, draw: random.Random) -> Sequence[Placed]:
    """Repeats a step word for word, at once or later."""
    steps = untouched(material.steps)
    index = draw.randrange(len(steps))
    steps.insert(draw.randint(index + 1, len(steps)), Placed(steps[index].text))
    return steps


def _repeat_reworded(material: Material, draw: random.Random) -> Sequence[Placed]:
    """Repeats a step in other words, at once or later."""
    steps = untouched(material.steps)
    index = draw.randrange(len(steps))
    steps.insert(draw.randint(index + 1, len(steps)), Placed(reword(steps[index].text, draw)))
    return steps


def _contradict(material: Material, draw: random.Random) -> Sequence[Placed]:
    """Inserts a step, the first or a later one, that says outright that a constraint is not kept."""
    if not material.constraints:
        raise NotApplicableError("the task has no constraint")
    constraint = draw.choice(material.constraints).strip().rstrip(".!;, ")
    steps = untouched(material.steps)
    steps.insert(draw.randint(0, len(steps)), Placed(_against(constraint)))
    return steps


def _stop(material: Material, draw: random.Random) -> Sequence[Placed]:
    """Deletes the second half, the middle step of an odd number included."""
    del draw
    steps = _at_least(2, material.steps)
    return steps[: len(steps) // 2]


def _replace(material: Material, draw: random.Random) -> Sequence[Placed]:
    """Puts another goal's script in the place of the whole."""
    return [Placed(text) for text in _stranger(material, draw)]


def _move(material: Material, draw: random.Random) -> Sequence[Placed]:
    """Moves one step by at least half of the script's length."""
    steps = _at_least(2, material.steps)
    source, target = draw.choice(_far_apart(len(steps)))
    if draw.random() < 0.5:
        source, target = target, source
    step = steps.pop(source)
    steps.insert(target, step._replace(moved=True))
    return steps


def _swap(material: Material, draw: random.Random) -> Sequence[Placed]:
    """Swaps two steps that are at least half of the script's length apart."""
    steps = _at_least(2, material.steps)
    first, last = draw.choice(_far_apart(len(steps)))
    steps[first], steps[last] = (steps[index]._replace(moved=True) for index in (last, first))
    return steps


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "delete": Rule(Category.MISSING_STEPS, _delete),
        "insert": Rule(Category.REDUNDANT_STEPS, _insert),
        "repeat": Rule(Category.DUPLICATE_STEPS, _repeat),
        "repeat-reworded": Rule(Category.DUPLICATE_STEPS, _repeat_reworded),
        "contradict": Rule(Category.BROKEN_CONSTRAINT, _contradict),
        "stop": Rule(Category.GOAL_NOT_REACHED, _stop),
        "replace": Rule(Category.GOAL_NOT_REACHED, _replace),
        "move": Rule(Category.WRONG_ORDER, _move),
        "swap": Rule(Category.WRONG_ORDER, _swap),
    }
)
"""The rules by name."""


def _at_least(count: int, steps: Sequence[str]) -> list[Placed]:
    if len(steps) < count:
        raise NotApplicableError(f"the script has fewer than {count} steps")
    return untouched(steps)


def _stranger(material: Material, draw: random.Random) -> Sequence[str]:
    if not material.strangers:
        raise NotApplicableError("there is no script of another goal")
    return draw.choice(material.strangers)


def _far_apart(count: int) -> Sequence[tuple[int, int]]:
    """The pairs of places that are at least half of the number of steps apart, the smaller one first."""
    least = max(1, count // 2)
    return [(first, last) for first in range(count) for last in range(first + least, count)]


def _against(constraint: str) -> str:
    """A step that breaks a constraint."""
    negated = _WITHOUT.match(constraint)
    if negated and constraint[negated.end() :].strip():
        return f"From here on, rely on this: {constraint[negated.end() :].strip()}."
    return f"Do the rest in a way that is not: {constraint}."
