"""``dramaturg evaluate``."""

from __future__ import annotations

from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.evaluation_service_pb2 import EvaluateScriptsRequest
from dramaturg.cli.decisions.command import decisions
from dramaturg.cli.dialogues.command import dialogues
from dramaturg.cli.display import show_tables, verdicts_judged
from dramaturg.cli.evaluations import Evaluation, Job, evaluate_file
from dramaturg.cli.graphs.evaluating import graphs
from dramaturg.cli.grouping import takes_groups
from dramaturg.cli.options import GoldAnswer, JudgeModels, Judges, Mechanism
from dramaturg.cli.overrides import Overrides
from dramaturg.cli.pairs.command import pairs
from dramaturg.cli.platform import fail
from dramaturg.cli.tally import Tally

app = typer.Typer(no_args_is_help=True, help="Evaluates what language models wrote.")


@app.callback()
def evaluate() -> None:
    """Evaluates what language models wrote."""


@app.command("scripts")
@takes_groups
def scripts(
    job: Job,
    judge: Judges = None,
    model: JudgeModels = None,
    mechanism: Mechanism = None,
    gold_answer: GoldAnswer = None,
    group_by: Annotated[
        str, typer.Option(metavar="TAG", help="A tag by whose values verdicts are also counted.")
    ] = "",
) -> None:
    """Evaluates scripts (ABSEval): seven verdicts a candidate.

    Each line or row is an EvaluateScriptsRequest (docs/datasets.md). All are checked before anything is
    asked. DIR/results.jsonl gets one ScriptsResult a line and DIR/errors.jsonl the samples that failed, both
    in the order of the rows.

    Exit codes: 0 all samples have a result, 1 some failed, 2 wrong usage or rows, 130 interrupted.

    For example:

        dramaturg evaluate scripts tasks.jsonl

        dramaturg evaluate scripts tasks.jsonl --judge critic=llm --judge critic=offline --model gpt-4o

        dramaturg evaluate scripts - --target localhost:50051 --mechanism single-judge --json < tasks.jsonl
    """
    try:
        overrides = Overrides.parse(judge or (), model or (), mechanism, gold_answer)
    except ValueError as error:
        fail(str(error))
    evaluate_file(
        job,
        Evaluation(
            request=EvaluateScriptsRequest,
            roles=("synthesize", "critic", "execute", "commonsense", "script-judge"),
            evaluate=lambda client, request, seconds: client.evaluate_scripts(request, timeout=seconds),
            apply=overrides.apply,
            noun="verdicts",
            judged=verdicts_judged,
            tally=Tally(group_by),
            show=show_tables,
            judges=overrides.judges,
        ),
    )


app.command("decisions")(decisions)
app.command("dialogues")(dialogues)
app.command("pairs")(pairs)
app.command("graphs")(graphs)
