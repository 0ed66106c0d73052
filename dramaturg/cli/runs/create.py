"""``dramaturg runs create``: one command for each evaluation, with the options of every run and its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.api.evaluation.v1.dialogues_pb2 import EvaluateDialoguesRequest
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.texts_pb2 import CompareTextsRequest
from dramaturg.cli.evaluate.decisions import DecisionOverrides, PromptName
from dramaturg.cli.evaluate.decisions import OrderName as OptionOrderName
from dramaturg.cli.evaluate.dialogues import DialogueOverrides
from dramaturg.cli.evaluate.graphs import (
    CyclePolicyName,
    DistanceModeName,
    GraphOverrides,
    MethodName,
    TaskName,
)
from dramaturg.cli.evaluate.pair_variants import Baselines, Order, RoleSet, Variants
from dramaturg.cli.judge_selection import Overrides
from dramaturg.cli.options import GoldAnswer, Mechanism, ModelsUnderTest
from dramaturg.cli.runs.create_options import command_of
from dramaturg.datasets import Row
from dramaturg.judge.role_sets import NAMES

app = typer.Typer(
    no_args_is_help=True, help="Creates a run. The command returns at once unless --watch is given."
)


@app.callback()
def create() -> None:
    """Creates a run. The command returns at once unless --watch is given."""


@app.command("scripts")
@command_of("scripts")
def scripts(
    mechanism: Mechanism = None,
    gold_answer: GoldAnswer = None,
) -> EvaluateScriptsRequest:
    """Creates a run that evaluates scripts (ABSEval): seven verdicts a candidate.

    Each --model writes a script for the task of every row, beside the candidates that the row brings.

    For example:

        dramaturg runs create scripts tasks.jsonl --model gpt-4o --model my-model --watch

        dramaturg runs create scripts s3://bucket/tasks.parquet --judge critic=llm --max-cost-usd 20
    """
    row = EvaluateScriptsRequest()
    Overrides(mechanism=mechanism, gold_answer=gold_answer).apply(row)
    return row


@app.command("pairs")
@command_of("texts")
def pairs(
    order: Order = None,
    baseline: Baselines = None,
    roles: RoleSet = "",
    k: Annotated[
        int | None,
        typer.Option("--k", min=0, max=50, help="Number of subjective roles, half of them coarse."),
    ] = None,
) -> CompareTextsRequest:
    """Creates a run that evaluates pairs of texts (DRPE).

    For example:

        dramaturg runs create pairs pairs.jsonl --k 6 --baseline llm
    """
    if roles and roles not in NAMES:
        raise ValueError(f"--roles {roles!r}: the sets are {', '.join(NAMES)}")
    variants = Variants(
        order=order,
        baselines=tuple(dict.fromkeys(baseline or ())),
        role_set=roles,
        counts=() if k is None else (k,),
    )
    return variants.spread(Row(0, CompareTextsRequest()))[0]


@app.command("graphs")
@command_of("graphs")
def graphs(
    task: Annotated[
        TaskName | None,
        typer.Option(help="The task of the models. Default: that of the row, else predict-edges."),
    ] = None,
    method: Annotated[MethodName | None, typer.Option(help="Method of edge prediction.")] = None,
    cycle_policy: Annotated[
        CyclePolicyName | None, typer.Option(help="Policy that breaks cycles of pairwise predictions.")
    ] = None,
    distance_mode: Annotated[DistanceModeName | None, typer.Option(help="Mode of the edit distance.")] = None,
    reduce: Annotated[bool, typer.Option("--reduce", help="Compare transitive reductions.")] = False,
) -> EvaluateGraphsRequest:
    """Creates a run that evaluates script graphs (proScript).

    For example:

        dramaturg runs create graphs dev.jsonl --model my-model --task pipeline
    """
    row = EvaluateGraphsRequest()
    GraphOverrides(
        task=task,
        method=method,
        cycle_policy=cycle_policy,
        distance_mode=distance_mode,
        reduce=reduce or None,
    ).apply(row)
    return row


@app.command("decisions")
@command_of("decisions")
def decisions(
    prompt: Annotated[
        list[PromptName] | None, typer.Option(help="Prompt of the question; repeatable.")
    ] = None,
    order: Annotated[
        OptionOrderName | None, typer.Option(help="Order in which the options are shown.")
    ] = None,
) -> EvaluateDecisionsRequest:
    """Creates a run that evaluates decisions (Choice-75).

    For example:

        dramaturg runs create decisions dev.csv --model my-model --prompt naive --prompt story
    """
    row = EvaluateDecisionsRequest()
    DecisionOverrides((), (), tuple(prompt or ()), order).apply(row)
    return row


@app.command("dialogues")
@command_of("dialogues")
def dialogues(
    model: ModelsUnderTest = None,
    pair: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL,MODEL", help="Two models to compare; repeatable. all: every pair of --model."
        ),
    ] = None,
    no_ratings: Annotated[
        bool, typer.Option("--no-ratings", help="Compare replies without rating them.")
    ] = False,
) -> EvaluateDialoguesRequest:
    """Creates a run that evaluates dialogues (SimulBench).

    For example:

        dramaturg runs create dialogues scripts.jsonl --model gpt-4o --model my-model --pair all
    """
    row = EvaluateDialoguesRequest()
    under_test: Sequence[str] = model or ()
    DialogueOverrides.parse((), (), under_test, pair or (), ratings_omitted=no_ratings).apply(row)
    if pair and not row.pairs:
        raise ValueError("--pair all needs two models or more, named with --model")
    return row
