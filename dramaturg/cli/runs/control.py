"""``dramaturg runs``: commands that steer runs, and ``leaderboard`` and ``agreement``."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from dramaturg.api.alignment.v1.agreement_pb2 import MeasureAgreementResponse
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import Run, RunSpec
from dramaturg.api.evaluation.v1.run_results_pb2 import LeaderboardEntry
from dramaturg.api.evaluation.v1.run_service_pb2 import GetLeaderboardResponse, RerunScope
from dramaturg.cli.align.options import agreement_tables, interval_methods
from dramaturg.cli.fields import Setting, check_fields, parse_settings
from dramaturg.cli.options import AsJson
from dramaturg.cli.platform import fail, output
from dramaturg.cli.runs.connection import (
    DEFAULT_TARGET,
    MaxCost,
    MaxTokens,
    RunConcurrency,
    RunId,
    RunTarget,
    ask,
)
from dramaturg.cli.runs.results import print_run, tell_next_of
from dramaturg.cli.runs.watch import Watch, follow
from dramaturg.cli.tables import interval, model_name, number, print_tables
from dramaturg.cli.terminal import tell_next
from dramaturg.results.leaderboard import DEFAULT_MINIMUM_COVERAGE
from dramaturg.results.quantities import usage_summary
from dramaturg.run_client import RunClient
from dramaturg.summaries.estimates import agreement
from dramaturg.tables.model import ABSENT, Table, columns, percent_of

app = typer.Typer()


class ScopeName(StrEnum):
    """Which samples are evaluated anew (``evaluation.v1.RerunScope``)."""

    FAILED = "failed"
    FAILED_OR_ABSTAINED = "failed-or-abstained"
    ALL = "all"


@app.command("cancel")
def cancel(run_id: RunId, target: RunTarget = DEFAULT_TARGET, as_json: AsJson = False) -> None:
    """Cancels a run and its model calls. Results so far are kept."""
    print_run(ask(target, lambda runs: runs.cancel(run_id)), as_json=as_json)
    tell_next("show", run_id, "--target", target)


@app.command("pause")
def pause(run_id: RunId, target: RunTarget = DEFAULT_TARGET, as_json: AsJson = False) -> None:
    """Pauses a run: running samples are finished, no further sample starts."""
    _begun(ask(target, lambda runs: runs.pause(run_id)), target, watch=False, as_json=as_json)


@app.command("resume")
def resume(
    run_id: RunId, target: RunTarget = DEFAULT_TARGET, watch: Watch = False, as_json: AsJson = False
) -> None:
    """Resumes a paused run."""
    _begun(ask(target, lambda runs: runs.resume(run_id)), target, watch=watch, as_json=as_json)


@app.command("update")
def update(
    run_id: RunId,
    target: RunTarget = DEFAULT_TARGET,
    concurrency: RunConcurrency = None,
    max_cost_usd: MaxCost = None,
    max_tokens: MaxTokens = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Set a field of limits or budget, as in limits.priority=5; repeatable.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Changes the limits and the budget of a run, in any state. Options that are not given are unchanged.

    For example:

        dramaturg runs update RUN --concurrency 64 --max-cost-usd 50
    """
    given = {
        "limits.max_concurrent_samples": concurrency,
        "budget.max_cost_usd": max_cost_usd,
        "budget.max_token_count": max_tokens,
    }
    changed = [Setting(path, str(value)) for path, value in given.items() if value is not None]
    spec = RunSpec()
    try:
        changed += parse_settings(settings or ())
        check_fields(spec, changed)
    except ValueError as error:
        fail(str(error))
    if other := [one.path for one in changed if one.root not in {"limits", "budget"}]:
        fail(f"--set {other[0]}: only limits and budget of a run can be changed")
    if not changed:
        fail("nothing is to be changed: name --concurrency, --max-cost-usd, --max-tokens or --set")

    async def change(runs: RunClient) -> Run:
        mask = [one.path for one in changed]
        return await runs.update(run_id, limits=spec.limits, budget=spec.budget, update_mask=mask)

    _begun(ask(target, change), target, watch=False, as_json=as_json)


@app.command("rerun")
def rerun(
    run_id: RunId,
    target: RunTarget = DEFAULT_TARGET,
    scope: Annotated[
        ScopeName, typer.Option(help="The samples to evaluate anew.")
    ] = ScopeName.FAILED_OR_ABSTAINED,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Repeat model calls instead of using recorded completions.")
    ] = False,
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Evaluates samples of an ended run anew. Recorded completions are used again.

    For example:

        dramaturg runs rerun RUN --scope failed --watch
    """
    wanted = RerunScope.Value(f"RERUN_SCOPE_{scope.upper().replace('-', '_')}")
    run = ask(target, lambda runs: runs.rerun(run_id, wanted, fresh=fresh))
    _begun(run, target, watch=watch, as_json=as_json)


@app.command("extend")
def extend(
    run_id: RunId,
    model: Annotated[list[str], typer.Option(help="A further model under test; repeatable.")],
    target: RunTarget = DEFAULT_TARGET,
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """Adds models under test to an ended run. Existing results are kept.

    For example:

        dramaturg runs extend RUN --model another-model --watch
    """
    _begun(ask(target, lambda runs: runs.extend(run_id, model)), target, watch=watch, as_json=as_json)


@app.command("delete")
def delete(
    run_id: RunId,
    target: RunTarget = DEFAULT_TARGET,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Deletes an ended run with its samples and results. Completions remain in the ledger."""
    if not yes:
        typer.confirm(f"Delete the run {run_id} with all its results?", abort=True, err=True)
    ask(target, lambda runs: runs.delete(run_id))
    typer.echo(json.dumps({"deleted": run_id}) if as_json else f"deleted {run_id}")
    tell_next("runs", "list", "--target", target)


def _begun(run: Run, target: str, *, watch: bool, as_json: bool) -> None:
    if watch:
        follow(target, run.id, as_json=as_json)
    print_run(run, as_json=as_json)
    tell_next_of(run, target)


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
