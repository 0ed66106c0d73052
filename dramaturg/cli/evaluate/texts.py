"""The kind ``texts`` of ``dramaturg eval``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.texts_pb2 import (
    EvaluateTextsRequest,
    RubricCriterion,
)
from dramaturg.cli.evaluation import Evaluation, Job, JudgedRows, evaluate_file
from dramaturg.cli.judge_selection import parse_judges, parse_models, set_judges, set_shadow_wait
from dramaturg.cli.option_groups import takes_groups
from dramaturg.cli.options import GroupBy, JudgeModels, Judges, ShadowWait, UnusableOutputsAbstain
from dramaturg.cli.platform import fail
from dramaturg.cli.summaries import summary_options
from dramaturg.cli.text_tables import TableColumns
from dramaturg.formats.rubric import BUILTIN, RubricError, read_rubric, ready_rubrics

Criteria = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help=f"The rubric: a TOML file (docs/reference/texts.md), or {BUILTIN}NAME with one of "
        f"{', '.join(ready_rubrics())}. Default: that of each row.",
    ),
]


@takes_groups
def texts(
    columns: TableColumns,
    job: Job,
    criteria: Criteria = None,
    judge: Judges = None,
    judge_model: JudgeModels = None,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Judge only criteria with a rule, without a model."),
    ] = False,
    unusable_outputs_abstain: UnusableOutputsAbstain = False,
    shadow_wait: ShadowWait = 0,
    group_by: GroupBy = None,
) -> None:
    """Evaluates any texts by a rubric: criteria that pass, fail or have a scale.

    FILE is a table with a text a row and optionally its task, model, reference, id and topic; other columns
    are tags, and rows of one task are one sample. Or each row is an EvaluateTextsRequest: a task and the
    texts written for it (docs/reference/texts.md). All rows are checked before the first call.
    DIR/results.jsonl gets one TextsResult a line and DIR/errors.jsonl the samples that failed, both in the
    order of the rows. Criteria with a rule need no model: their judges have the role rule-judge, those of
    others rubric-judge.

    Exit codes: 0 all samples have a result, 1 some failed or nothing was judged, 2 wrong usage or rows,
    4 fewer than 0.9 of the judgements were made, 130 interrupted.

    For example:

        dramaturg eval answers.csv --criteria rubric.toml

        dramaturg eval answers.csv --criteria builtin:groundedness --context passages

        dramaturg eval survey.xlsx --criteria rubric.toml --text comment

        dramaturg eval requests.jsonl --judge rubric-judge=llm --judge rubric-judge=ours
    """
    try:
        judges, models = parse_judges(judge or ()), parse_models("--judge-model", judge_model or ())
    except ValueError as error:
        fail(str(error))
    if offline:
        if judges or models:
            fail("--offline names the judge; leave out --judge and --judge-model")
        judges = (("rubric-judge", "offline"),)
    rubric = rubric_of(criteria)
    of_all = models.pop("", "")

    def apply(request: EvaluateTextsRequest) -> None:
        set_rubric(request, rubric)
        set_judges(request.judges, judges, models)
        if unusable_outputs_abstain:
            request.unusable_outputs_abstain = True
        set_shadow_wait(request, shadow_wait)
        if of_all:
            request.options.model = of_all

    with columns.as_requests(job) as of_requests:
        evaluate_file(
            of_requests,
            Evaluation(
                request=EvaluateTextsRequest,
                roles=("rubric-judge", "rule-judge", "alignment"),
                apply=apply,
                options=summary_options(group_by),
                unjudged=bool(rubric) and all(one.HasField("rule") for one in rubric),
                filled=("criteria",) if rubric else (),
            ),
        )


def rubric_of(source: str | None) -> Sequence[RubricCriterion]:
    """The criteria of a file, or of a ready rubric; none without a source.

    Raises:
        typer.Exit: 2 with a message where the source is no rubric.
    """
    if source is None:
        return ()
    try:
        return read_rubric(source)
    except RubricError as error:
        fail(f"{source}: {error}")
    except OSError as error:
        fail(f"{source}: {error.strerror or error}")


def set_rubric(request: EvaluateTextsRequest, rubric: Sequence[RubricCriterion]) -> None:
    """Puts a rubric in place of that of a row. An empty one leaves the row's."""
    if rubric:
        del request.criteria[:]
        request.criteria.extend(rubric)


RUBRIC_ROWS = JudgedRows(
    EvaluateTextsRequest,
)
"""The rows of rubric judges."""
