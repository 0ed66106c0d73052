"""Rules that insert one fault into a script, without a model; categories of faults, changes of scripts.

Rules do not consider meaning: a deleted step may be unnecessary, and two swapped steps may be valid in either
order. Detection rates on them are lower bounds (docs/research/perturbations.md). Rules that paraphrase steps,
for English, insert no fault.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from dramaturg.api.generation.v1 import authoring_datasets_pb2 as pb
from dramaturg.api.generation.v1.authoring_datasets_pb2 import StepChange
from dramaturg.judge import criteria
from dramaturg.meta_evaluation.vocabulary import Vocabulary

BY_MODEL = "model"
"""The operation name of faults written by a model; others have the name of their rule."""
CATEGORY_TAG = "perturbation"
"""The tag that names the category of the fault; ``UNTOUCHED`` where there is none."""
OPERATION_TAG = "operation"
"""The tag that names how the fault was made; ``UNTOUCHED`` where there is none."""
CANDIDATE_TAG = "candidate"
"""The tag that names the candidate that has the fault."""
LINE_TAG = "source_line"
"""The tag that names the line of the row that it was made of."""
UNTOUCHED = "none"
"""The category and operation of a script as it was."""


class Category(StrEnum):
    """A category of faults (``generation.v1.PerturbationCategory``)."""

    MISSING_STEPS = "missing-steps"
    REDUNDANT_STEPS = "redundant-steps"
    DUPLICATE_STEPS = "duplicate-steps"
    BROKEN_CONSTRAINT = "broken-constraint"
    GOAL_NOT_REACHED = "goal-not-reached"
    WRONG_ORDER = "wrong-order"

    @property
    def number(self) -> pb.PerturbationCategory.ValueType:
        """The enum value in the contract."""
        return pb.PerturbationCategory.Value(f"PERTURBATION_CATEGORY_{self.name}")

    @property
    def criterion(self) -> str:
        """The criterion that the fault breaks."""
        return CRITERIA[self]


CRITERIA: Mapping[Category, str] = MappingProxyType(
    {
        Category.MISSING_STEPS: criteria.NO_MISSING_STEPS,
        Category.REDUNDANT_STEPS: criteria.NO_REDUNDANT_STEPS,
        Category.DUPLICATE_STEPS: criteria.NO_DUPLICATE_STEPS,
        Category.BROKEN_CONSTRAINT: criteria.SATISFIES_CONSTRAINTS,
        Category.GOAL_NOT_REACHED: criteria.COMPLETES_GOAL,
        Category.WRONG_ORDER: criteria.ORDER_CORRECT,
    }
)
"""The criterion that each category breaks. No category of ABSEval breaks ``executable``."""


class PlacedStep(NamedTuple):
    """A step of a perturbed script."""

    text: str
    """The text of the step."""
    origin: int | None = None
    """The index of the original step, from 0. None: an added step."""
    moved: bool = False
    """Whether its order among the kept steps changed."""


@dataclass(frozen=True)
class Change:
    """One step that was removed, added, reworded or moved (``generation.v1.StepChange``)."""

    original_index: int | None
    """Index in the original, from 0. None: an added step."""
    perturbed_index: int | None
    """Index in the perturbed script, from 0. None: a removed step."""
    original_text: str = ""
    """Text before the change."""
    perturbed_text: str = ""
    """Text after the change."""

    def message(self) -> StepChange:
        """Encodes a contract message."""
        return StepChange(
            original_index=self.original_index,
            perturbed_index=self.perturbed_index,
            original_text=self.original_text,
            perturbed_text=self.perturbed_text,
        )


class MismatchError(ValueError):
    """The changes belong to another script."""


def untouched(original: Sequence[str]) -> list[PlacedStep]:
    """The steps of a script without changes."""
    return [PlacedStep(text, index) for index, text in enumerate(original)]


def find_changes(original: Sequence[str], perturbed: Sequence[PlacedStep]) -> tuple[Change, ...]:
    """The changes, ordered by index in the perturbed script, removed steps by their original index.

    Args:
        original: The original steps.
        perturbed: The perturbed steps. Origins are unique, and steps that are neither added nor moved keep
            their order.

    Raises:
        MismatchError: An origin repeats, or the order changed without ``moved``.
    """
    origins = [step.origin for step in perturbed if step.origin is not None]
    kept = [step.origin for step in perturbed if step.origin is not None and not step.moved]
    if len(set(origins)) < len(origins) or kept != sorted(kept):
        raise MismatchError("an origin repeats, or a step changed its order without being marked as moved")
    changes = [Change(index, None, text) for index, text in enumerate(original) if index not in set(origins)]
    for index, step in enumerate(perturbed):
        if step.origin is None:
            changes.append(Change(None, index, "", step.text))
        elif step.moved or step.text != original[step.origin]:
            changes.append(Change(step.origin, index, original[step.origin], step.text))
    return tuple(sorted(changes, key=_position))


def _position(change: Change) -> tuple[int, int]:
    index = change.original_index if change.perturbed_index is None else change.perturbed_index
    assert index is not None
    return index, -1 if change.original_index is None else change.original_index


_SYNONYMS: Mapping[str, str] = MappingProxyType(
    {
        "begin": "start",
        "buy": "purchase",
        "choose": "select",
        "clean": "wash",
        "collect": "gather",
        "find": "locate",
        "gather": "collect",
        "get": "obtain",
        "mix": "stir together",
        "obtain": "get",
        "place": "put",
        "purchase": "buy",
        "put": "place",
        "repeat": "do again",
        "research": "read up on",
        "select": "choose",
        "start": "begin",
        "use": "make use of",
        "write": "put in writing",
    }
)
"""Synonyms of the first verb of a step."""
_FRAMES = ("Make sure to {}", "Be sure to {}", "Remember to {}", "Take care to {}", "See to it that you {}")
_FIRST_WORD = re.compile(r"[A-Za-z]+(?![\w'’-])")
_WITH = "Do the rest with {}."
_OBJECT = (
    r"(?:an?|the|any|all|some|every|each|too|more|less|much|many|your|his|her|its|their|our|my|this|that|these|those"
    r"|it|them|up|down|out|off|on|in|into|at|to|over|with|for|from)"
)
_CONTRARIES = (
    (r"(?:do\s+not|don['\u2019]t)", "Go ahead and {}."),
    (r"by\s+(?:not|never)", "Do the rest by {}."),
    # A verb with its object: "without opening a window", not "without baking soda".
    (
        rf"(?:without|not|never|avoid(?:ing)?)(?=\s+(?!using\b)\w{{2,}}ing\s+{_OBJECT}\b)",
        "Do the rest by {}.",
    ),
    (r"(?:without(?:\s+(?:using|any))?|with\s+no|no|not\s+using|avoid(?:ing)?|never)", _WITH),
    (r"(?:with|using|by\s+using|by(?=\s+\w{2,}ing\b))", "Do the rest without {}."),
)
"""How constraints begin, and the step that violates one, with the rest of the constraint."""
_STEPS_AGAINST = [
    (re.compile(rf"(?:(?:but|and)\s+)?{start}\s+(?=\S)", re.IGNORECASE), step) for start, step in _CONTRARIES
]
_CIRCUMSTANCE = re.compile(
    r"(?:by|for|to|in|on|at|from|as|via|through|under|within|before|after|during|while|when|if|because|out\s+of|online"
    r"|every|once|twice|about|like|until|per|between|near|against|over|into|inside|outside|indoors|outdoors)\b",
    re.IGNORECASE,
)
_NOUN_PHRASE = re.compile(
    r"(?:an?|the|your|one|two|three|my|any|every|these|those)\s+\S+(?:\s+\S+){0,3}$", re.IGNORECASE
)
"""A short phrase that an article or the like begins."""


def reword(step: str, draw: random.Random) -> str:
    """Paraphrases a step: replaces its first verb by a synonym, if known, and adds a phrase before it.

    Args:
        step: The step, in the imperative.
        draw: The random generator.
    """
    text = step.strip()
    first = _FIRST_WORD.match(text)
    if first:
        word = first[0]
        # Names and abbreviations keep their capitals.
        word = word if word.isupper() and len(word) > 1 else word.lower()
        text = _SYNONYMS.get(word, word) + text[first.end() :]
    return draw.choice(_FRAMES).format(text)


class NotApplicableError(Exception):
    """The rule does not apply to the script; the message gives the reason."""


@dataclass(frozen=True)
class Material:
    """The input of a rule: a script and its context."""

    steps: Sequence[str]
    """The steps of the script."""
    constraints: Sequence[str] = ()
    """The constraints of its task."""
    other_scripts: Sequence[Sequence[str]] = ()
    """The steps of scripts for other goals."""
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    """The words of the scripts of the file."""


@dataclass(frozen=True)
class Rule:
    """One way to insert a fault."""

    category: Category
    """The category of the fault."""
    apply: Callable[[Material, random.Random], Sequence[PlacedStep]]
    """Returns the perturbed steps, or raises ``NotApplicableError``."""


@dataclass(frozen=True)
class Perturbed:
    """A script with a fault."""

    steps: Sequence[str]
    """The perturbed steps."""
    changes: Sequence[Change]
    """The changes from the original."""


def perturb(operation: str, material: Material, draw: random.Random) -> Perturbed:
    """Inserts a fault into a script.

    Args:
        operation: The name of the rule, a key of ``RULES``.
        material: The script, with at least one step and no blank steps, and its context.
        draw: The random generator for the choices of the rule.

    Raises:
        NotApplicableError: The rule does not apply, or its result equals the script.
    """
    placed = RULES[operation].apply(material, draw)
    steps = [step.text for step in placed]
    if steps == list(material.steps):
        raise NotApplicableError("the changed steps have the same texts")
    return Perturbed(steps, find_changes(material.steps, placed))


def _delete(material: Material, draw: random.Random) -> Sequence[PlacedStep]:
    """Deletes one step."""
    steps = _at_least(2, material.steps)
    del steps[draw.randrange(len(steps))]
    return steps


def _insert(material: Material, draw: random.Random) -> Sequence[PlacedStep]:
    """Inserts a step of a script for another goal."""
    steps = untouched(material.steps)
    steps.insert(draw.randint(0, len(steps)), PlacedStep(draw.choice(_other_script(material, draw))))
    return steps


def _repeat(material: Material, draw: random.Random) -> Sequence[PlacedStep]:
    """Repeats a step verbatim, directly after it or later."""
    steps = untouched(material.steps)
    index = draw.randrange(len(steps))
    steps.insert(draw.randint(index + 1, len(steps)), PlacedStep(steps[index].text))
    return steps


def _repeat_reworded(material: Material, draw: random.Random) -> Sequence[PlacedStep]:
    """Repeats a paraphrased step, directly after it or later."""
    steps = untouched(material.steps)
    index = draw.randrange(len(steps))
    steps.insert(draw.randint(index + 1, len(steps)), PlacedStep(reword(steps[index].text, draw)))
    return steps


def _contradict(material: Material, draw: random.Random) -> Sequence[PlacedStep]:
    """Inserts a step that explicitly violates a constraint, at any position."""
    if not material.constraints:
        raise NotApplicableError("the task has no constraint")
    constraint = draw.choice(material.constraints).strip().rstrip(".!;, ")
    steps = untouched(material.steps)
    steps.insert(draw.randint(0, len(steps)), PlacedStep(_violation(constraint, material.vocabulary)))
    return steps


def _stop(material: Material, draw: random.Random) -> Sequence[PlacedStep]:
    """Deletes the second half, the middle step of an odd number included."""
    del draw
    steps = _at_least(2, material.steps)
    return steps[: len(steps) // 2]


def _replace(material: Material, draw: random.Random) -> Sequence[PlacedStep]:
    """Replaces the script by one for another goal."""
    return [PlacedStep(text) for text in _other_script(material, draw)]


def _move(material: Material, draw: random.Random) -> Sequence[PlacedStep]:
    """Moves one step by at least half of the script's length."""
    steps = _at_least(2, material.steps)
    source, target = draw.choice(_far_apart(len(steps)))
    if draw.random() < 0.5:
        source, target = target, source
    step = steps.pop(source)
    steps.insert(target, step._replace(moved=True))
    return steps


def _swap(material: Material, draw: random.Random) -> Sequence[PlacedStep]:
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


def _at_least(count: int, steps: Sequence[str]) -> list[PlacedStep]:
    if len(steps) < count:
        raise NotApplicableError(f"the script has fewer than {count} steps")
    return untouched(steps)


def _other_script(material: Material, draw: random.Random) -> Sequence[str]:
    if not material.other_scripts:
        raise NotApplicableError("there is no script for another goal")
    return draw.choice(material.other_scripts)


def _far_apart(count: int) -> Sequence[tuple[int, int]]:
    """Pairs of indices at least half of the script's length apart, smaller index first."""
    least = max(1, count // 2)
    return [(first, last) for first in range(count) for last in range(first + least, count)]


def _violation(constraint: str, vocabulary: Vocabulary) -> str:
    """A step that violates a constraint."""
    for start, step in _STEPS_AGAINST:
        if found := start.match(constraint):
            return step.format(constraint[found.end() :])
    running = constraint[0].lower() + constraint[1:]
    if _CIRCUMSTANCE.match(constraint):
        return f"Do the rest, but not {running}."
    if _NOUN_PHRASE.match(constraint):
        return f"Forget about {running} and do the rest as you like."
    first, _, rest = running.partition(" ")
    if rest and first in vocabulary.verbs:
        return f"Do not {running}."
    return f'Forget about "{constraint}" and do the rest as you like.'
