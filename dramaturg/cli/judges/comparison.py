"""``dramaturg judges compare``: two judges on the same rows."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any

import typer

from dramaturg.api.evaluation.v1 import scripts_pb2
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluateTextsRequest
from dramaturg.cli.evaluate.scripts import verdicts_judged as scripts_judged
from dramaturg.cli.evaluate.texts import Criteria, rubric_of, set_rubric
from dramaturg.cli.evaluate.texts import verdicts_judged as texts_judged
from dramaturg.cli.evaluation import Evaluation, Job, evaluate_file
from dramaturg.cli.option_groups import takes_groups
from dramaturg.cli.platform import fail
from dramaturg.cli.summaries import show_comparisons, show_limits
from dramaturg.cli.terminal import Terminal
from dramaturg.client import DramaturgClient

app = typer.Typer()

_RUBRIC_JUDGE, _SCRIPT_JUDGE = "rubric-judge", "script-judge"


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

    Prints their agreement with its interval, the verdicts that differ, pass rates, cost and latency. Equal
    pass rates are not agreement. Rows are those of "evaluate scripts", with the role rubric-judge those of
    "evaluate texts". No other role is judged. DIR/results.jsonl has the assessments of both.

    Exit codes: 0 all samples have a result, 1 some failed or nothing was judged, 2 wrong usage or rows,
    4 fewer than 0.9 of the judgements of the first judge were made, 130 interrupted.

    For example:

        dramaturg judges compare critic=llm theirs tasks.jsonl --target localhost:50051

        dramaturg judges compare rubric-judge=llm offline answers.jsonl --criteria rubric.toml
    """
    role, _, name = first.partition("=")
    other = second.removeprefix(f"{role}=")
    if not role or not name or "=" in other:
        fail(f"{first!r} {second!r}: name the judges as ROLE=NAME NAME")
    if name == other:
        fail(f"{name!r} is named twice; for two models of one judge, register it under two names")
    texts = role == _RUBRIC_JUDGE
    if criteria is not None and not texts:
        fail(f"--criteria is for the role {_RUBRIC_JUDGE}")
    rubric = rubric_of(criteria)

    def apply(request: Any) -> None:
        del request.judges[:]
        request.judges.append(JudgeSelection(role=role, judge=name, model=first_model))
        request.shadows.append(JudgeSelection(role=role, judge=other, model=second_model))
        request.shadow_wait.FromNanoseconds(round(job.timeout * 1e9))
        if texts:
            set_rubric(request, rubric)
            return
        request.roles.append(role)
        if role == _SCRIPT_JUDGE:
            request.mechanism = scripts_pb2.MECHANISM_SINGLE_JUDGE

    def evaluate(client: DramaturgClient, request: Any, seconds: float) -> AsyncGenerator[Any]:
        method: Any = client.evaluate_texts if texts else client.evaluate_scripts
        events: AsyncGenerator[Any] = method(request, timeout=seconds)
        return events

    def show(console: Terminal, summary: Summary) -> None:
        show_comparisons(console, summary)
        show_limits(console, summary)

    evaluate_file(
        job,
        Evaluation(
            request=EvaluateTextsRequest if texts else EvaluateScriptsRequest,
            roles=(role, "alignment") if texts else ("synthesize", role, "alignment"),
            evaluate=evaluate,
            apply=apply,
            noun="verdicts",
            judged=texts_judged if texts else scripts_judged,
            judges=((role, name), (role, other)),
            show=show,
            filled=("criteria",) if rubric else (),
        ),
    )
