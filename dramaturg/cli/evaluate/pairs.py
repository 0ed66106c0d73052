"""The kind ``pairs`` of ``dramaturg eval``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluateTextsRequest, RubricCriterion
from dramaturg.cli.evaluate.pair_variants import MOST_SUBJECTIVE, PairOptions
from dramaturg.cli.evaluation import Evaluation, Job, JudgedRows, evaluate_file
from dramaturg.cli.judge_selection import parse_judges, parse_models, set_shadow_wait
from dramaturg.cli.option_groups import takes_groups
from dramaturg.cli.options import GroupBy, JudgeModels, Judges, ShadowWait
from dramaturg.cli.platform import fail
from dramaturg.cli.summaries import summary_options
from dramaturg.cli.text_tables import TableColumns
from dramaturg.formats import texts as table
from dramaturg.summaries.text_metrics import DEFAULT_METRICS, METRICS


@takes_groups
def pairs(
    own: PairOptions,
    columns: TableColumns,
    job: Job,
    sweep: Annotated[str, typer.Option(metavar="K,K,...", help="Several numbers of subjective roles.")] = "",
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of the presentation order. Default: the order of the row."),
    ] = None,
    judge: Judges = None,
    judge_model: JudgeModels = None,
    no_judge: Annotated[
        bool, typer.Option("--no-judge", "--offline", help="Only text metrics and length, without a model.")
    ] = False,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help=f"A text metric; repeatable, or none. Default: {', '.join(DEFAULT_METRICS)}. "
            f"Others: {', '.join(METRICS[len(DEFAULT_METRICS) :])}."
        ),
    ] = None,
    shadow_wait: ShadowWait = 0,
    group_by: GroupBy = None,
) -> None:
    """Evaluates pairs of texts: roles or a rubric, baselines, human labels (DRPE).

    Each row is an EvaluatePairsRequest (docs/reference/datasets.md), as "research convert goyal" writes
    them. Of a table with a text a row (docs/reference/texts.md), every two texts of a task are a pair. All
    rows are checked before the first call. DIR/results.jsonl gets one PairResult a line, a sweep one for
    each number of roles, and DIR/errors.jsonl the pairs that failed. For each method: accuracy against
    people with Wilson's interval, Pearson, Spearman and Kendall with jackknife intervals, and Williams'
    test against the best baseline. "longer" prefers the longer text.

    Exit codes: 0 all pairs have a result, 1 some failed or nothing was judged, 2 wrong usage or rows,
    4 fewer than 0.9 of the judgements were made, 130 interrupted.

    For example:

        dramaturg eval pairs.jsonl --no-judge

        dramaturg eval pairs.jsonl --judge-model my-model --baseline llm --baseline fixed-roles

        dramaturg eval --kind pairs answers.csv --criteria rubric.toml

        dramaturg eval pairs.jsonl --order as-given --sweep 0,2,4,6 --seed 7 --json
    """
    try:
        variants = replace(
            own.variants(),
            judges=parse_judges(judge or ()),
            models=parse_models("--judge-model", judge_model or ()),
            counts=_counts(own.k, sweep),
            seed=seed,
            metrics=_metrics(metric),
            judged=not no_judge,
        )
    except ValueError as error:
        fail(str(error))
    if no_judge and (judge or judge_model or own.baseline or sweep or own.k is not None):
        fail("--no-judge excludes --judge, --judge-model, --baseline, --k and --sweep")
    if job.by_reference and seed is not None:
        fail("--by-reference excludes --seed: the gateway keeps the order of each row")
    if own.criteria and sweep:
        fail("--criteria excludes --sweep")
    with columns.as_requests(job, lambda requests: _compared(requests, variants.criteria)) as of_requests:
        evaluate_file(
            of_requests,
            Evaluation(
                request=EvaluatePairsRequest,
                roles=("alignment", "embedding", *(() if no_judge else ("roles", "pair-judge"))),
                apply=lambda request: set_shadow_wait(request, shadow_wait),
                unjudged=no_judge,
                options=summary_options(group_by, seed=seed or 0),
                spread=variants.spread,
                spread_count=max(1, len(variants.counts)),
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


def _metrics(names: list[str] | None) -> tuple[str, ...]:
    if names == ["none"]:
        return ()
    if unknown := [name for name in names or () if name not in METRICS]:
        raise ValueError(f"--metric {unknown[0]!r}: the metrics are {', '.join(METRICS)}")
    return tuple(dict.fromkeys(names or DEFAULT_METRICS))


def _counts(k: int | None, sweep: str) -> tuple[int, ...]:
    if k is not None and sweep:
        raise ValueError("--k and --sweep exclude each other")
    if k is not None:
        return (k,)
    parts = [part.strip() for part in sweep.split(",")] if sweep else []
    if not all(part.isdecimal() and int(part) <= MOST_SUBJECTIVE for part in parts):
        raise ValueError(f"--sweep {sweep!r} is not of the form K,K,... with K from 0 to {MOST_SUBJECTIVE}")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _judge_by(request: EvaluatePairsRequest, _: str) -> None:
    request.judging_omitted = False


PAIR_ROWS = JudgedRows(
    EvaluatePairsRequest,
    ("roles", "embedding"),
    _judge_by,
)
"""The rows of judges of pairs."""
