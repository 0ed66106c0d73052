"""``dramaturg runs results``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated, Any

import typer
from google.protobuf.json_format import MessageToDict

from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Outcome
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.run_service_pb2 import ResultFilter
from dramaturg.cli.options import AsJson
from dramaturg.cli.platform import fail, output
from dramaturg.cli.runs.connection import DEFAULT_TARGET, RunId, RunTarget, ask
from dramaturg.cli.tables import Table, print_tables
from dramaturg.cli.terminal import echo
from dramaturg.results.names import outcome_name, reason_name
from dramaturg.run_client import RunClient

app = typer.Typer()

LARGEST_PAGE = 10_000
"""The most judgements of one page (``evaluation.v1.ListResultsRequest.page_size``)."""

Measures = Annotated[
    list[str] | None, typer.Option("--measure", help="Only judgements by this measure; repeatable.")
]
Models = Annotated[
    list[str] | None, typer.Option("--model", help="Only judgements of this model; repeatable.")
]
Outcomes = Annotated[
    list[str] | None,
    typer.Option("--outcome", help="Only this outcome: pass, fail or abstain; repeatable."),
]
Reasons = Annotated[
    list[str] | None,
    typer.Option("--reason", help="Only abstentions for this reason, e.g. timed-out; repeatable."),
]


def make_filter(
    measures: Sequence[str] | None,
    models: Sequence[str] | None,
    outcomes: Sequence[str] | None,
    reasons: Sequence[str] | None,
) -> ResultFilter:
    """Which judgements are wanted.

    Raises:
        typer.Exit: 2 with a message where an outcome or reason is none.
    """
    return ResultFilter(
        measures=measures,
        models=models,
        outcomes=[Outcome.Value(_member("--outcome", Outcome, "OUTCOME_", text)) for text in outcomes or ()],
        abstain_reasons=[
            AbstainReason.Value(_member("--reason", AbstainReason, "ABSTAIN_REASON_", text))
            for text in reasons or ()
        ],
    )


@app.command("results")
def results(
    run_id: RunId,
    target: RunTarget = DEFAULT_TARGET,
    measure: Measures = None,
    model: Models = None,
    outcome: Outcomes = None,
    reason: Reasons = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of judgements.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Lists judgements by sample. "runs export" writes all of them.

    For example:

        dramaturg runs results RUN --outcome fail --measure no_missing_steps

        dramaturg runs results RUN --reason unparsable --json
    """
    where = make_filter(measure, model, outcome, reason)
    found = ask(target, lambda runs: _take(runs, run_id, where, limit, numbers_only=not as_json))
    listed, more = found[:limit], len(found) > limit
    if as_json:
        described = [MessageToDict(one, preserving_proto_field_name=True) for one in listed]
        typer.echo(json.dumps({"results": described, "more": more}, ensure_ascii=False))
        return
    print_tables(output(), _results_table(listed) if listed else "there are no such judgements")
    if more:
        echo(f"there are more than {limit}: --limit, or runs export", err=True)


def _member(option: str, enum: Any, prefix: str, text: str) -> str:
    name = prefix + text.upper().replace("-", "_")
    known = [known for known in enum.keys() if not known.endswith("_UNSPECIFIED")]  # noqa: SIM118 - no mapping
    if name not in known:
        names = ", ".join(one.removeprefix(prefix).lower().replace("_", "-") for one in known)
        fail(f"{option} {text!r}: there are {names}")
    return name


async def _take(
    runs: RunClient, run_id: str, where: ResultFilter, limit: int, *, numbers_only: bool
) -> Sequence[RunResult]:
    """The first judgements, and one more where there are more."""
    found: list[RunResult] = []
    page_size = min(limit + 1, LARGEST_PAGE)
    async with aclosing(
        runs.results(run_id, where, numbers_only=numbers_only, page_size=page_size)
    ) as listed:
        async for result in listed:
            found.append(result.message)
            if len(found) > limit:
                break
    return found


def _results_table(listed: Sequence[RunResult]) -> Table:
    heads = ("outcome", "value", "label", "judge")
    table = Table("sample", "id", "model", "candidate", "measure", texts=heads)
    for one in listed:
        outcome = outcome_name(one.outcome) if one.outcome else ""
        if one.abstain_reason:
            outcome = f"{outcome} ({reason_name(one.abstain_reason)})"
        table.add_row(
            str(one.sample_index),
            one.sample_id,
            one.model,
            one.candidate_id,
            one.measure,
            outcome,
            f"{one.value:g}" if one.HasField("value") else "",
            one.label,
            one.judge,
        )
    return table
