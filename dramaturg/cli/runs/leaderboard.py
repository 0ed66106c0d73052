"""``dramaturg runs leaderboard``."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from dramaturg.api.evaluation.v1.run_results_pb2 import LeaderboardEntry
from dramaturg.api.evaluation.v1.run_service_pb2 import GetLeaderboardResponse
from dramaturg.cli.cells import interval, model_name, number
from dramaturg.cli.options import AsJson
from dramaturg.cli.platform import output
from dramaturg.cli.runs.connection import DEFAULT_TARGET, RunId, RunTarget, ask
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import tell_next
from dramaturg.results.leaderboard import DEFAULT_MINIMUM_COVERAGE
from dramaturg.summaries.samples import usage_summary
from dramaturg.tables.cells import percent_of
from dramaturg.tables.model import ABSENT, Table, columns

app = typer.Typer()


@app.command("leaderboard")
def leaderboard(
    run_id: RunId,
    target: RunTarget = DEFAULT_TARGET,
    measure: Annotated[
        str, typer.Option(help="The measure to rank by. Default: that of the evaluation.")
    ] = "",
    minimum_coverage: Annotated[
        float, typer.Option(min=0, max=1, help="Models judged on a smaller share are unranked.")
    ] = DEFAULT_MINIMUM_COVERAGE,
    as_json: AsJson = False,
) -> None:
    """Ranks the models of a run: mean, 95 % interval, bounds, coverage, abstentions, cost.

    The bounds are the means with every abstention at the lowest and at the highest value of the scale.

    For example:

        dramaturg runs leaderboard RUN --measure executable
    """
    board = ask(target, lambda runs: runs.leaderboard(run_id, measure, minimum_coverage=minimum_coverage))
    if as_json:
        typer.echo(json.dumps(_describe_board(board), ensure_ascii=False))
        return
    console = output()
    print_tables(console, _board_table(board))
    for notice in board.notices:
        console.print(f"note: {notice}", style="yellow")
    if not board.final:
        console.print("the run has not ended: these figures will change", style="yellow")
    tell_next("report", run_id, "--target", target)


def _describe_board(board: GetLeaderboardResponse) -> dict[str, Any]:
    return {
        "measure": board.measure,
        "final": board.final,
        "notices": list(board.notices),
        "models": [_describe_entry(entry) for entry in board.entries],
    }


def _describe_entry(entry: LeaderboardEntry) -> dict[str, Any]:
    figures = {
        name: getattr(entry, name) if entry.HasField(name) else None
        for name in ("mean", "lower", "upper", "mean_lowest", "mean_highest")
    }
    return {
        "rank": entry.rank or None,
        "model": entry.model,
        **figures,
        "judged": entry.judged_count,
        "judgements": entry.judgement_count,
        "coverage": entry.coverage,
        "samples": entry.sample_count,
        "abstentions": dict(sorted(entry.abstentions_by_reason.items())),
        "means": dict(sorted(entry.means_by_measure.items())),
        "usage": usage_summary(entry.usage) if entry.HasField("usage") else None,
    }


def _bounds(entry: LeaderboardEntry) -> str:
    """The means with every abstention at the lowest and at the highest value of the scale."""
    if entry.HasField("mean_highest"):
        return interval(entry.mean_lowest, entry.mean_highest)
    return f"{number(entry.mean_lowest)} or more" if entry.HasField("mean_lowest") else ABSENT


def _board_table(board: GetLeaderboardResponse) -> Table:
    measures = sorted({name for entry in board.entries for name in entry.means_by_measure})
    heads = (
        board.measure or "mean",
        "95 % interval",
        "bounds",
        "judged",
        "coverage",
        "abstained",
        *measures,
    )
    table = Table("", columns("rank", "model", figures=heads))
    for entry in board.entries:
        table.add_row(
            str(entry.rank or "unranked"),
            model_name(entry.model),
            number(entry.mean if entry.HasField("mean") else None),
            interval(entry.lower, entry.upper) if entry.HasField("lower") else ABSENT,
            _bounds(entry),
            f"{entry.judged_count:,}/{entry.judgement_count:,}",
            percent_of(entry.coverage),
            str(sum(entry.abstentions_by_reason.values())),
            *(number(entry.means_by_measure.get(name)) for name in measures),
        )
    return table
