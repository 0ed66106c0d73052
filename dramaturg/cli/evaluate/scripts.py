"""``dramaturg evaluate scripts``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest, EvaluateScriptsResponse
from dramaturg.cli.cells import named, percent
from dramaturg.cli.evaluation import Evaluation, Job, evaluate_file
from dramaturg.cli.judge_selection import Overrides
from dramaturg.cli.option_groups import takes_groups
from dramaturg.cli.options import GoldAnswer, JudgeModels, Judges, Mechanism
from dramaturg.cli.platform import fail
from dramaturg.cli.progress import JudgementCount
from dramaturg.cli.tables import Table, print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.summaries.scripts import OUTCOMES, ScriptsAggregator


@takes_groups
def scripts(
    job: Job,
    judge: Judges = None,
    model: JudgeModels = None,
    mechanism: Mechanism = None,
    gold_answer: GoldAnswer = None,
    group_by: Annotated[
        str, typer.Option(metavar="TAG", help="Also count verdicts by the values of this tag.")
    ] = "",
) -> None:
    """Evaluates scripts (ABSEval): seven verdicts a candidate.

    Each row is an EvaluateScriptsRequest (docs/datasets.md). All rows are checked before the first call.
    DIR/results.jsonl gets one ScriptsResult a line and DIR/errors.jsonl the samples that failed, both in
    the order of the rows.

    Exit codes: 0 all samples have a result, 1 some failed or nothing was judged, 2 wrong usage or rows,
    4 fewer than 0.9 of the judgements were made, 130 interrupted.

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
            aggregator=ScriptsAggregator(group_by),
            show=_show,
            judges=overrides.judges,
        ),
    )


def verdicts_judged(event: EvaluateScriptsResponse) -> JudgementCount:
    """How many verdicts an event of an evaluation of scripts brings."""
    verdicts = event.assessment.assessment.verdicts
    return JudgementCount(
        len(verdicts), sum(verdict.outcome == verdict_pb2.OUTCOME_ABSTAIN for verdict in verdicts)
    )


def _show(console: Terminal, aggregator: ScriptsAggregator) -> None:
    """Prints the verdicts by criterion, by model where there are several, by tag, and the abstentions."""
    by_criterion = {name: aggregator.by_criterion[name] for name in aggregator.criteria()}
    tables = [_verdict_table("criterion", {**by_criterion, "all": aggregator.verdicts})]
    if len(aggregator.by_model) > 1:
        tables.append(_verdict_table("model", aggregator.by_model))
    if aggregator.group_by:
        tables.append(_verdict_table(aggregator.group_by, dict(sorted(aggregator.by_tag.items()))))
    abstained = Table("abstained because", figures=("verdicts",))
    for reason, count in aggregator.abstentions.most_common():
        abstained.add_row(reason, str(count))
    print_tables(console, *tables, abstained)


def _verdict_table(name: str, rows: Mapping[str, Mapping[str, int]]) -> Table:
    table = Table(name, figures=(*OUTCOMES, "PASS of judged"))
    for label, counts in rows.items():
        judged = counts.get("PASS", 0) + counts.get("FAIL", 0)
        share = percent(counts.get("PASS", 0) / judged if judged else None)
        table.add_row(named(label), *(str(counts.get(outcome, 0)) for outcome in OUTCOMES), share)
    return table
