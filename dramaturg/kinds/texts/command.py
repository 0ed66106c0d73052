"""The kind ``texts`` of ``dramaturg eval``."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.evaluation.v1.texts_pb2 import EvaluateTextsRequest, RubricCriterion
from dramaturg.cli.evaluation import Evaluation, Job, JudgedRows, evaluate_file
from dramaturg.cli.judge_selection import parse_judges, parse_models, set_judges
from dramaturg.cli.kind_options import KindOptions, TableColumns, rubric_of
from dramaturg.cli.platform import fail
from dramaturg.cli.summaries import summary_options
from dramaturg.datasets.row_file import RowsError, open_rows
from dramaturg.formats.evaluated_file import rewind

USED = ("criteria", "judge", "judge_model", "offline", "group_by")
"""The options of the kind."""


def evaluate(own: KindOptions, job: Job, columns: TableColumns) -> None:
    """Evaluates texts by a rubric. Errors are those of ``evaluate_file``.

    Raises:
        ValueError: A judge or a model is malformed.
    """
    judges, models = parse_judges(own.judge or ()), parse_models("--judge-model", own.judge_model or ())
    if own.offline:
        if judges or models:
            raise ValueError("--offline names the judge; leave out --judge and --judge-model")
        judges = (("rubric-judge", "offline"),)
    rubric = rubric_of(own.criteria)
    of_all = models.pop("", "")

    def apply(request: EvaluateTextsRequest) -> None:
        set_rubric(request, rubric)
        set_judges(request.judges, judges, models)
        if of_all:
            request.options.model = of_all

    with columns.as_requests(job) as of_requests:
        if not (rubric or job.sets("criteria") or job.by_reference or _have_criteria(of_requests)):
            fail(
                f"{job.file}: criteria: the first row has none. Name a rubric with --criteria FILE, or a "
                "ready one with --criteria builtin:NAME, such as builtin:groundedness"
            )
        evaluate_file(
            of_requests,
            Evaluation(
                request=EvaluateTextsRequest,
                roles=("rubric-judge", "rule-judge", "alignment"),
                apply=apply,
                options=summary_options(own.group_by),
                unjudged=bool(rubric) and all(one.HasField("rule") for one in rubric),
                filled=("criteria",) if rubric else (),
            ),
        )


def _have_criteria(job: Job) -> bool:
    """Whether the first row has criteria; also where it cannot be read, which is told when all are."""
    try:
        with open_rows(job.file, EvaluateTextsRequest, 1, job.format, ("criteria",)) as rows:
            return all(row.request.criteria for row in rows)
    except (OSError, RowsError):
        return True
    finally:
        rewind(job.file)


def set_rubric(request: EvaluateTextsRequest, rubric: Sequence[RubricCriterion]) -> None:
    """Puts a rubric in place of that of a row. An empty one leaves the row's."""
    if rubric:
        del request.criteria[:]
        request.criteria.extend(rubric)


RUBRIC_ROWS = JudgedRows(
    EvaluateTextsRequest,
)
"""The rows of rubric judges."""
