"""Duplicate steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dramaturg.judge.steps import is_blank
from services.agents.offline.calibration import DUPLICATE_SIMILARITY, POSSIBLE_DUPLICATE_SIMILARITY
from services.agents.offline.material import Embedded
from services.agents.offline.wording import contrast, normalise

_MOST_PAIRS = 10_000
"""The maximum number of examined pairs, nearest first. With more, the judge at least abstains."""


@dataclass(frozen=True)
class Repetition:
    """Steps that are duplicates or possible duplicates."""

    steps: tuple[int, ...]
    """Their indices, ascending, at least two."""
    similarity: float
    """The cosine of the steps; 1 for the same wording."""
    doubt: str = ""
    """The reason of doubt, in words. Empty: they are duplicates."""


def repeated_wordings(steps: Sequence[str]) -> list[Repetition]:
    """Returns steps of equal wording, ignoring case, spaces and the final stop. Blank steps do not count."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, step in enumerate(steps):
        if not is_blank(step):
            groups[normalise(step)].append(index)
    return [Repetition(tuple(group), 1.0) for group in groups.values() if len(group) > 1]


def repeated_meanings(steps: Sequence[str], embedded: Embedded) -> list[Repetition]:
    """Returns pairs of differently worded steps that are duplicates or possible duplicates, nearest first.

    A pair is in doubt if its cosine is below the threshold, if content words, numbers or directions differ,
    or if the encoder truncated a step.
    """
    firsts: dict[str, int] = {}
    for index, step in enumerate(steps):
        if not is_blank(step):
            firsts.setdefault(normalise(step), index)
    indices = sorted(firsts.values())
    if len(indices) < 2:
        return []
    vectors = embedded.rows([steps[index] for index in indices])
    cosines = vectors @ vectors.T
    cosines[np.tril_indices(len(indices))] = -1
    pairs = [
        (indices[row], indices[column], min(1.0, float(cosines[row, column])))
        for row, column in np.argwhere(cosines >= POSSIBLE_DUPLICATE_SIMILARITY)
    ]
    pairs.sort(key=lambda pair: (-pair[2], pair[:2]))
    del pairs[_MOST_PAIRS:]
    return [
        Repetition((first, second), cosine, _doubt(steps[first], steps[second], cosine, embedded))
        for first, second, cosine in pairs
    ]


def grouped(repetitions: Iterable[Repetition]) -> list[Repetition]:
    """Joins repetitions that share a step, ordered by the first step. Each step is in one group at most.

    The similarity of a group is the lowest of its repetitions.
    """
    groups: list[Repetition] = []
    for repetition in repetitions:
        steps, similarity, apart = set(repetition.steps), repetition.similarity, []
        for group in groups:
            if steps.isdisjoint(group.steps):
                apart.append(group)
            else:
                steps.update(group.steps)
                similarity = min(similarity, group.similarity)
        groups = [*apart, Repetition(tuple(sorted(steps)), similarity)]
    return sorted(groups, key=lambda group: group.steps)


def _doubt(first: str, second: str, cosine: float, embedded: Embedded) -> str:
    if cosine < DUPLICATE_SIMILARITY:
        return f"below {DUPLICATE_SIMILARITY}"
    if first in embedded.truncated or second in embedded.truncated:
        return "only their beginnings were compared"
    difference = contrast(first, second)
    return "" if difference is None else f"they differ in {difference}"
