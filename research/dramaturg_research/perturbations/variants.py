"""The rows that are made of a script: untouched, and with each fault; and the record of what was changed."""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.json_format import MessageToDict

from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.generation.v1.authoring_datasets_pb2 import Perturbation
from dramaturg.meta_evaluation.rules import (
    CANDIDATE_TAG,
    CATEGORY_TAG,
    LINE_TAG,
    OPERATION_TAG,
    RULES,
    UNTOUCHED,
    Category,
    Material,
    NotApplicableError,
    perturb,
)
from dramaturg.meta_evaluation.vocabulary import Vocabulary
from dramaturg_research.perturbations.originals import Original, ScriptsOfOtherGoals

MAX_ID_LENGTH = 200
"""The longest id of a task in characters (``common.v1.Task.id``)."""


@dataclass(frozen=True)
class Variant:
    """A script, untouched or with a fault."""

    original: Original
    """What it was made of."""
    steps: Sequence[str]
    """Its steps."""
    category: Category | None = None
    """What is wrong with it. None: nothing was made wrong."""
    perturbation: Perturbation = field(default_factory=Perturbation)
    """What was changed."""

    def row(self, *, keep_others: bool) -> EvaluateScriptsRequest:
        """The row of the kind ``scripts``, tagged, with a task id of its own."""
        made = self.original.with_steps(self.steps, keep_others=keep_others)
        if self.category is not None or keep_others:
            # Labels of the original are none of a variant.
            operation = self.perturbation.operation or UNTOUCHED
            task_id = made.task.id or f"line {self.original.line}"
            made.task.id = _variant_id(task_id, self.original.candidate_id, operation)
        made.tags[CATEGORY_TAG] = self.category or UNTOUCHED
        made.tags[OPERATION_TAG] = self.perturbation.operation or UNTOUCHED
        made.tags[CANDIDATE_TAG] = self.original.candidate_id
        made.tags[LINE_TAG] = str(self.original.line)
        return made

    def record(self, line: int, seed: int) -> dict[str, Any]:
        """What was changed, as a JSON object.

        Args:
            line: The number of the row's line, from 1.
            seed: The seed that decided what the rule leaves open.
        """
        return {
            "line": line,
            "source_line": self.original.line,
            "task_id": self.original.request.task.id,
            "candidate_id": self.original.candidate_id,
            "category": self.category,
            "seed": seed,
            "perturbation": MessageToDict(self.perturbation, preserving_proto_field_name=True),
        }


def _variant_id(task_id: str, candidate_id: str, operation: str) -> str:
    """The task's id with the candidate and the operation; a digest of it if it is longer than ids may be."""
    made = "#".join((task_id, candidate_id, operation))
    if len(made) <= MAX_ID_LENGTH:
        return made
    return f"{made[: MAX_ID_LENGTH - 17]}#{hashlib.sha256(made.encode()).hexdigest()[:16]}"


@dataclass
class Skipped:
    """What could not be made, by operation and reason."""

    counts: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, operation: str, reason: str) -> None:
        """Counts one."""
        self.counts[operation][reason] += 1

    def summary(self) -> dict[str, dict[str, int]]:
        """The counts."""
        return {operation: dict(sorted(reasons.items())) for operation, reasons in self.counts.items()}


def chosen_rules(categories: Sequence[Category], operations: Sequence[str]) -> Sequence[str]:
    """The rules of these categories, or those named; of none of both all of them."""
    return [
        name
        for name, rule in RULES.items()
        if (not categories or rule.category in categories) and (not operations or name in operations)
    ]


def by_rule(
    original: Original,
    operations: Sequence[str],
    others: Mapping[str, ScriptsOfOtherGoals],
    vocabulary: Vocabulary,
    seed: int,
    skipped: Skipped,
) -> Iterator[Variant]:
    """A variant for each rule that can be applied to a script.

    What is drawn depends on the seed, the row, the candidate and the rule alone, so that a rule makes the
    same of a script regardless of other requested rules.
    """
    material = Material(original.steps, original.constraints(vocabulary), others[original.goal], vocabulary)
    for operation in operations:
        category = RULES[operation].category
        draw = random.Random(f"{seed}/{original.line}/{original.candidate_id}/{operation}")  # noqa: S311 - no secret
        try:
            made = perturb(operation, material, draw)
        except NotApplicableError as error:
            skipped.add(operation, str(error))
            continue
        changes = [change.message() for change in made.changes]
        perturbation = Perturbation(category=category.number, operation=operation, changes=changes)
        yield Variant(original, made.steps, category, perturbation)
