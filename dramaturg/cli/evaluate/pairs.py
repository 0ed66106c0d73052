"""The kind ``pairs`` of ``dramaturg eval``."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluateTextsRequest, RubricCriterion
from dramaturg.cli.evaluate.options import KindOptions, rubric_of
from dramaturg.cli.evaluate.pair_variants import Variants
from dramaturg.cli.evaluation import Evaluation, Job, JudgedRows, evaluate_file
from dramaturg.cli.judge_selection import parse_judges, parse_models
from dramaturg.cli.summaries import summary_options
from dramaturg.cli.text_tables import TableColumns
from dramaturg.formats import texts as table
from dramaturg.judge.role_sets import NAMES
from dramaturg.summaries.text_metrics import DEFAULT_METRICS, METRICS

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
