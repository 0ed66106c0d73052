"""The requests of each row: judges, roles, order, and one request for each number of roles."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest, RolePlan
from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.cli.judge_selection import set_judges
from dramaturg.datasets import Row
from dramaturg.results.pairs import COUNT_TAG, LINE_TAG, SEED_TAG


@dataclass(frozen=True)
class Variants:
    """Settings of the command line; absent ones keep the row's value."""

    judges: Sequence[tuple[str, str]] = ()
    """(role, judge) pairs."""
    models: Mapping[str, str] = field(default_factory=dict)
    """The model of every judge of a role, by role; the empty role: all others."""
    role_set: str = ""
    """The set of objective roles."""
    criteria: Sequence[RubricCriterion] = ()
    """A rubric in place of roles."""
    counts: Sequence[int] = ()
    """How many subjective roles; several are a sweep. Of an odd number one more is coarse than fine."""
    seed: int | None = None
    """Seed of the presentation order. None: the order of the row."""
    metrics: Sequence[str] = ()
    """The text metrics."""
    judged: bool = True
    """Whether judges are asked."""

    def spread(self, row: Row[EvaluatePairsRequest]) -> Sequence[EvaluatePairsRequest]:
        """The requests of a row: one for each number of roles, baselines and metrics in the first."""
        request = row.request
        request.tags[LINE_TAG] = str(row.line)
        if self.seed is not None:
            shuffle(request, self.seed, row.line)
        self._apply(request)
        if not self.counts:
            return [request]
        made = [self._with_count(request, count) for count in self.counts]
        for repeated in made[1:]:
            del repeated.baselines[:]
            del repeated.text_metrics[:]
        return made

    def _apply(self, request: EvaluatePairsRequest) -> None:
        models = dict(self.models)
        if model := models.pop("", ""):
            request.options.model = model
        set_judges(request.judges, self.judges, models)
        if self.metrics:
            request.text_metrics[:] = self.metrics
        if not self.judged:
            request.judging_omitted = True
            del request.baselines[:]
        if self.role_set:
            request.roles.objective_set = self.role_set
            del request.roles.objective_roles[:]
            del request.roles.criteria[:]
        if self.criteria:
            request.roles.CopyFrom(RolePlan(criteria=self.criteria))

    @staticmethod
    def _with_count(request: EvaluatePairsRequest, count: int) -> EvaluatePairsRequest:
        made = EvaluatePairsRequest()
        made.CopyFrom(request)
        made.tags[COUNT_TAG] = str(count)
        made.roles.coarse_count = (count + 1) // 2
        made.roles.fine_count = count // 2
        del made.roles.subjective_roles[:]
        return made


SWAPPED_TAG = "swapped"
"""The tag that records whether an evaluation swapped a row's texts."""

_MIRRORED = {pb.PREFERENCE_FIRST: pb.PREFERENCE_SECOND, pb.PREFERENCE_SECOND: pb.PREFERENCE_FIRST}


def shuffle(request: EvaluatePairsRequest, seed: int, line: int) -> None:
    """Swaps the texts of a request, or does not, and records in its tags what was done.

    The draw depends on the seed and the row alone, so any order of evaluation, and any part of a file, gives
    the same presentation.

    Args:
        request: The request; changed.
        seed: The seed.
        line: The number of the row's line.
    """
    swapped = random.Random(f"{seed}/{line}/{request.id}").random() < 0.5  # noqa: S311 - an order, no secret
    if swapped:
        first = type(request.first)()
        first.CopyFrom(request.first)
        request.first.CopyFrom(request.second)
        request.second.CopyFrom(first)
        request.human_preference = _MIRRORED.get(request.human_preference, request.human_preference)
    request.tags[SEED_TAG] = str(seed)
    request.tags[SWAPPED_TAG] = "true" if swapped else "false"
