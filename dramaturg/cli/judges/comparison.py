"""``dramaturg judges compare``: two judges on the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.cli.evaluation import Evaluation, Job, JudgedRows, evaluate_file
from dramaturg.cli.judge_selection import set_shadow_wait
from dramaturg.cli.kind_options import Criteria, rubric_of
from dramaturg.cli.options import takes_groups
from dramaturg.cli.platform import fail
from dramaturg.cli.tables import print_sections
from dramaturg.cli.terminal import Terminal
from dramaturg.judge.roles import CHALLENGE_JUDGE, PAIR_JUDGE, RATING_JUDGE, RUBRIC_JUDGE
from dramaturg.kinds.dialogues.command import RATED_ROWS
from dramaturg.kinds.pairs.command import PAIR_ROWS
from dramaturg.kinds.scripts.command import SCRIPT_ROWS
from dramaturg.kinds.simulations.command import CHALLENGE_ROWS
from dramaturg.kinds.texts.command import RUBRIC_ROWS, set_rubric
from dramaturg.tables.common import comparison_sections, limit_sections

app = typer.Typer()


_ROWS: Mapping[str, JudgedRows[Any]] = {
    RUBRIC_JUDGE.name: RUBRIC_ROWS,
    PAIR_JUDGE.name: PAIR_ROWS,
    RATING_JUDGE.name: RATED_ROWS,
    CHALLENGE_JUDGE.name: CHALLENGE_ROWS,
}
"""By role; the others have those of scripts."""


@app.command("compare")
@takes_groups
def compare(
    first: Annotated[str, typer.Argument(metavar="ROLE=NAME", help="The role and a judge or panel of it.")],
    second: Annotated[str, typer.Argument(metavar="NAME", help="The other judge of the role.")],
    job: Job,
    first_model: Annotated[str, typer.Option(metavar="MODEL", help="The model of the first judge.")] = "",
    second_model: Annotated[str, typer.Option(metavar="MODEL", help="The model of the second judge.")] = "",
    criteria: Criteria = None,
) -> None:
    """Compares two judges of a role on the same rows, which both judge at once.

    Prints their agreement with its interval, the judgements that differ, pass rates, cost and latency. Equal
    pass rates are not agreement. Rows are of the kind scripts; with the role rubric-judge of texts, with
    pair-judge of pairs, with rating-judge of dialogues, whose replies are rated, and with challenge-judge of
    "simulate", each simulated once. DIR/results.jsonl has the judgements of both.

    Exit codes: 0 all samples have a result, 1 some failed or nothing was judged, 2 wrong usage or rows,
    4 fewer than 0.9 of the judgements of the first judge were made, 130 interrupted.

    For example:

        dramaturg judges compare critic=llm theirs tasks.jsonl --target localhost:50051

        dramaturg judges compare rubric-judge=llm offline answers.jsonl --criteria rubric.toml

        dramaturg judges compare pair-judge=llm theirs pairs.jsonl --second-model gpt-4o
    """
    role, _, name = first.partition("=")
    other = second.removeprefix(f"{role}=")
    if not role or not name or "=" in other:
        fail(f"{first!r} {second!r}: name the judges as ROLE=NAME NAME")
    if name == other:
        fail(f"{name!r} is named twice; for two models of one judge, register it under two names")
    if criteria is not None and role != RUBRIC_JUDGE.name:
        fail(f"--criteria is for the role {RUBRIC_JUDGE.name}")
    rubric = rubric_of(criteria)
    rows = _ROWS.get(role, SCRIPT_ROWS)

    def apply(request: Any) -> None:
        rows.narrow(request, role)
        selected = [one for one in request.judges if one.role in rows.others]
        del request.judges[:]
        request.judges.extend([*selected, JudgeSelection(role=role, judge=name, model=first_model)])
        del request.shadows[:]
        request.shadows.append(JudgeSelection(role=role, judge=other, model=second_model))
        set_shadow_wait(request, job.timeout)
        if role == RUBRIC_JUDGE.name:
            set_rubric(request, rubric)

    def show(console: Terminal, summary: Summary) -> None:
        print_sections(console, [*comparison_sections(summary), *limit_sections(summary)])

    evaluate_file(
        job,
        Evaluation(
            request=rows.request,
            roles=(*rows.others, role, "alignment"),
            apply=apply,
            show=show,
            problem=_problem,
            filled=("criteria",) if rubric else (),
        ),
    )


def _problem(summary: Summary) -> str:
    """Why the judges cannot be compared. Empty: they can."""
    compared = summary.judge_comparisons
    if any(figures.judged_count for one in compared for figures in one.figures):
        return ""
    names = " and ".join(f"{one.first_judge!r} and {one.second_judge!r}" for one in compared) or "the judges"
    return (
        f"nothing is compared: {names} have no verdict on the same criterion; `dramaturg judges` lists the "
        "criteria of each, and the abstentions above their reasons"
    )
