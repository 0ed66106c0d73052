"""``dramaturg runs cancel``, ``pause``, ``resume``, ``update``, ``rerun``, ``extend`` and ``delete``."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.run_pb2 import Run, RunSpec
from dramaturg.api.evaluation.v1.run_service_pb2 import RerunScope
from dramaturg.cli.fields import Setting, check_fields, parse_settings
from dramaturg.cli.options import AsJson
from dramaturg.cli.platform import fail
from dramaturg.cli.runs.connection import DEFAULT_TARGET, RunId, RunTarget, ask
from dramaturg.cli.runs.overview import print_run, tell_next_of
from dramaturg.cli.runs.spec import MaxCost, MaxTokens, RunConcurrency
from dramaturg.cli.runs.watch import Watch, follow
from dramaturg.cli.terminal import tell_next
from dramaturg.run_client import RunClient

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
