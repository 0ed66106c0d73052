"""The kind ``pairs`` of ``dramaturg eval``, and the requests of each row."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest, RolePlan
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluateTextsRequest, RubricCriterion
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.cli.evaluation import Evaluation, Job, JudgedRows, evaluate_file
from dramaturg.cli.judge_selection import parse_judges, parse_models, set_judges
from dramaturg.cli.kind_options import KindOptions, TableColumns, rubric_of
from dramaturg.cli.summaries import summary_options
from dramaturg.datasets import Row
from dramaturg.formats import texts as table
from dramaturg.judge.role_sets import NAMES
from dramaturg.kinds.pairs import COUNT_TAG, LINE_TAG, SEED_TAG
from dramaturg.kinds.pairs.text_metrics import DEFAULT_METRICS, METRICS


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


USED = ("criteria", "judge", "judge_model", "offline", "sweep", "shuffle", "group_by")
"""The options of the kind."""
BASELINES = ("llm", "fixed-roles")
"""What else compares (``evaluation.v1.EvaluatePairsRequest.baselines``)."""
MOST_SUBJECTIVE = 50
"""The most subjective roles that the command line asks for."""


def evaluate(own: KindOptions, job: Job, columns: TableColumns) -> None:
    """Evaluates pairs of texts. Errors are those of ``evaluate_file``.

    Raises:
        ValueError: A judge, a model or a number is malformed, or options exclude each other.
    """
    counts = parse_counts(own.sweep)
    baselines, roles = _names(job, "baselines", BASELINES), _names(job, "roles.objective_set", NAMES)
    if own.offline and (own.judge or own.judge_model or counts or baselines):
        raise ValueError("--offline excludes --judge, --judge-model, --sweep and --set baselines=")
    if own.criteria and (counts or job.sets("roles")):
        raise ValueError("--criteria excludes --sweep and --set roles.*=")
    if job.by_reference and own.shuffle is not None:
        raise ValueError("--by-reference excludes --shuffle: the gateway keeps the order of each row")
    _names(job, "text_metrics", METRICS)
    variants = Variants(
        judges=parse_judges(own.judge or ()),
        models=parse_models("--judge-model", own.judge_model or ()),
        criteria=rubric_of(own.criteria),
        role_set="".join(roles),
        counts=counts,
        seed=own.shuffle,
        metrics=DEFAULT_METRICS if job.setting("text_metrics") is None else (),
        judged=not own.offline,
    )
    with columns.as_requests(job, lambda requests: _compared(requests, variants.criteria)) as of_requests:
        evaluate_file(
            of_requests,
            Evaluation(
                request=EvaluatePairsRequest,
                roles=("alignment", "embedding", *(() if own.offline else ("roles", "pair-judge"))),
                apply=lambda _: None,
                unjudged=own.offline,
                options=summary_options(own.group_by, seed=own.shuffle or 0),
                spread=variants.spread,
                spread_count=max(1, len(variants.counts)),
                repeated_without=("baselines", "text_metrics"),
            ),
        )


def _compared(
    requests: Sequence[EvaluateTextsRequest], rubric: Sequence[RubricCriterion]
) -> Sequence[EvaluatePairsRequest]:
    """Every two texts of a task.

    Raises:
        TableError: No task has two texts, or a criterion is too long for a role.
    """
    made = [pair for request in requests for pair in table.pairs(request, rubric)]
    if not made:
        raise table.TableError("no task has two texts")
    return made


def parse_counts(sweep: str) -> tuple[int, ...]:
    """Reads K,K,...

    Raises:
        ValueError: It is malformed.
    """
    parts = [part.strip() for part in sweep.split(",")] if sweep else []
    if not all(part.isdecimal() and int(part) <= MOST_SUBJECTIVE for part in parts):
        raise ValueError(f"--sweep {sweep!r} is not of the form K,K,... with K from 0 to {MOST_SUBJECTIVE}")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _names(job: Job, field: str, known: Collection[str]) -> Sequence[str]:
    """The names that a field is set to.

    Raises:
        ValueError: One is unknown.
    """
    names = [name.strip() for name in (job.setting(field) or "").split(",") if name.strip()]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"--set {field}={unknown[0]}: the names are {', '.join(known)}")
    return names


def _judge_by(request: EvaluatePairsRequest, _: str) -> None:
    request.judging_omitted = False


PAIR_ROWS = JudgedRows(
    EvaluatePairsRequest,
    ("roles", "embedding"),
    _judge_by,
)
"""The rows of judges of pairs."""
