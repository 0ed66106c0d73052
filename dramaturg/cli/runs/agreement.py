"""``dramaturg runs agreement``."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from dramaturg.api.alignment.v1.agreement_pb2 import MeasureAgreementResponse
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.cli.align.report import agreement_tables, interval_methods
from dramaturg.cli.options import AsJson
from dramaturg.cli.platform import output
from dramaturg.cli.runs.connection import DEFAULT_TARGET, RunTarget, ask
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import tell_next
from dramaturg.summaries.estimates import agreement
from dramaturg.tables.model import Table, columns

app = typer.Typer()

_MATCHES = {"candidate": pb.ITEM_MATCH_CANDIDATE, "sample": pb.ITEM_MATCH_SAMPLE}


@app.command("agreement")
def judge_agreement(
    run_ids: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="One run: its judges. Several of the same items: the runs."),
    ],
    match: Annotated[
        str, typer.Option(help=f"How items of one run are found in another: {', '.join(_MATCHES)}.")
    ] = "candidate",
    target: RunTarget = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Measures how far judges agree with each other: those of one run, members of panels included, or runs.

    Prints Cohen's kappa of every two judges, Fleiss' kappa, Krippendorff's alpha and Gwet's AC1, for all
    criteria and each. Intervals take the items of a task together. Abstentions are in no figure.

    For example:

        dramaturg runs agreement RUN

        dramaturg runs agreement RUN OTHER_RUN
    """
    if match not in _MATCHES:
        raise typer.BadParameter(f"{match!r} is none of {', '.join(_MATCHES)}", param_hint="--match")
    request = pb.MeasureJudgeAgreementRequest(run_ids=run_ids, match=_MATCHES[match])
    response = ask(target, lambda runs: runs.judge_agreement(request))
    if as_json:
        typer.echo(json.dumps(_described(response), ensure_ascii=False))
        return
    console = output()
    print_tables(console, _judges(response))
    for name, found in _measured(response):
        console.print(f"{name}:")
        print_tables(console, *agreement_tables(found), *interval_methods(found))
    if response.single_count:
        console.print(f"left out: {response.single_count:,} items that fewer than two judges judged")
    tell_next("labels", "create", run_ids[0], "--target", target)


def _measured(
    response: pb.MeasureJudgeAgreementResponse,
) -> list[tuple[str, MeasureAgreementResponse]]:
    found = []
    if response.HasField("verdicts"):
        found.append(("verdicts", response.verdicts))
    if response.HasField("scores"):
        found.append(("scores", response.scores))
    return found


def _judges(response: pb.MeasureJudgeAgreementResponse) -> Table:
    table = Table("", columns("judge", figures=("judgements", "abstained")))
    for one in response.judges:
        table.add_row(one.name, f"{one.judgement_count:,}", f"{sum(one.abstentions_by_reason.values()):,}")
    return table


def _described(response: pb.MeasureJudgeAgreementResponse) -> dict[str, Any]:
    return {
        "judges": [
            {
                "judge": one.name,
                "judgements": one.judgement_count,
                "abstentions": dict(sorted(one.abstentions_by_reason.items())),
            }
            for one in response.judges
        ],
        **{name: [agreement(group) for group in found.groups] for name, found in _measured(response)},
        "single_items": response.single_count,
    }
