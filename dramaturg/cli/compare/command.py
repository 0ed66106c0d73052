"""The command."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from dramaturg.api.alignment.v1 import accuracy_pb2, compare_pb2
from dramaturg.cli.align.connection import call_alignment
from dramaturg.cli.align.labels import MORE_THAN_HALF, Majority, TieLabel, read_labels
from dramaturg.cli.align.options import Level, Resamples, Seed, print_json, tell
from dramaturg.cli.compare import report
from dramaturg.cli.found_results import HELP, find_results
from dramaturg.cli.lazy_group import MORE
from dramaturg.cli.options import AlignmentTarget, AsJson, LargestTaskLoss
from dramaturg.cli.platform import fail, output
from dramaturg.cli.terminal import tell_next
from dramaturg.datasets.json_lines import LineError
from dramaturg.results.setups import setup_changes
from dramaturg.summaries.comparison import CRITERION, SAMPLE, Run, RunsError, comparison, read_run
from dramaturg.summaries.labels import HumanLabels

app = typer.Typer()

EXIT_CODES = {
    compare_pb2.GATE_GO: 0,
    compare_pb2.GATE_NO_GO: 1,
    compare_pb2.GATE_INCONCLUSIVE: 3,
}
"""What the command exits with, by the gate. 2 is wrong usage."""
FAILED = 4
"""The exit code where the comparison could not be made; never that of a gate."""
POLICIES = {
    "excluded": accuracy_pb2.ABSTENTION_POLICY_EXCLUDED,
    "wrong": accuracy_pb2.ABSTENTION_POLICY_WRONG,
    "worst-case": accuracy_pb2.ABSTENTION_POLICY_WORST_CASE,
}
"""What an abstention counts as, by name."""

WITHHELD = "GO is withheld because the judges differ from those of the baseline: --despite-changes permits it"
"""The reason of a gate that would be GO if the judges were the same."""

_FEWEST = 2


@app.command("compare")
def compare(
    results: Annotated[
        list[str], typer.Argument(metavar="RESULTS...", help=f"{HELP}; several, the baseline first.")
    ],
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Human labels: compare agreement with them instead of pass rates.",
        ),
    ] = None,
    majority: Majority = MORE_THAN_HALF,
    tie_label: TieLabel = "",
    match: Annotated[
        str,
        typer.Option(
            metavar="candidate|sample",
            help="Match items by candidate, or by sample (one candidate a sample).",
            rich_help_panel=MORE,
        ),
    ] = "candidate",
    margin: Annotated[
        float, typer.Option(min=0, help="Tolerated loss: a share, or in the unit of the scores.")
    ] = 0.05,
    policy: Annotated[
        str, typer.Option(help=f"How the gate counts abstentions: {', '.join(POLICIES)}.")
    ] = "wrong",
    every_criterion: Annotated[
        bool, typer.Option("--every-criterion", help="GO only if every criterion is GO.")
    ] = False,
    largest_task_loss: LargestTaskLoss = None,
    anytime: Annotated[
        bool,
        typer.Option("--anytime", help="Bounds that hold at all looks at runs that go on; they cost power."),
    ] = False,
    despite_changes: Annotated[
        bool,
        typer.Option(
            "--despite-changes", help="Let the gate be GO although judges differ from those of the baseline."
        ),
    ] = False,
    power: Annotated[
        float,
        typer.Option(
            min=0.5,
            max=0.999,
            help="Power of the minimum detectable effect.",
            rich_help_panel=MORE,
        ),
    ] = 0.8,
    permutations: Annotated[
        int,
        typer.Option(
            min=1,
            max=100_000,
            help="Number of sampled permutations, where not all are enumerated.",
            rich_help_panel=MORE,
        ),
    ] = 9999,
    target: AlignmentTarget = None,
    resamples: Resamples = 0,
    level: Level = 0.95,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Compares runs over the same items with a baseline and decides a gate.

    For all items and for each criterion: the difference with its interval, the paired test with Holm's
    correction, the minimum detectable effect, under three policies of what an abstention counts as. Items of
    one sample are taken together. The gate is GO where the lower bound of the difference lies above minus the
    margin, NO-GO where a run is shown to be worse and its interval is not within the margin, else
    INCONCLUSIVE. The bound holds for any loss of samples that were not seen; --largest-task-loss states a
    smaller one. Where judges, their versions, models or prompts differ, that is said first, and GO needs
    --despite-changes or --labels.

    Exit codes: 0 GO, 1 NO-GO, 2 wrong usage, 3 INCONCLUSIVE, 4 the comparison failed.

    Example: dramaturg compare out/baseline out/candidate --margin 0.02
    """
    if len(results) < _FEWEST:
        raise typer.BadParameter("name at least two folders of results", param_hint="RESULTS")
    if policy not in POLICIES:
        raise typer.BadParameter(f"{policy!r} is none of {', '.join(POLICIES)}", param_hint="--policy")
    if match not in {"candidate", "sample"}:
        raise typer.BadParameter(f"{match!r} is neither candidate nor sample", param_hint="--match")
    runs = _read(results, target, by_sample=match == "sample")
    gold = read_labels(labels, majority, tie_label, target, failed=FAILED) if labels is not None else None
    request, left_out = _request(runs, gold)
    request.MergeFrom(
        compare_pb2.CompareRunsRequest(
            group_tag=CRITERION,
            cluster_tag=SAMPLE,
            margin=margin,
            confidence_level=level,
            permutation_count=permutations,
            resample_count=resamples,
            seed=seed,
            power=power,
            abstention_policy=POLICIES[policy],
            gate_scope=(
                compare_pb2.GATE_SCOPE_EVERY_GROUP if every_criterion else compare_pb2.GATE_SCOPE_ALL_ITEMS
            ),
            largest_task_loss=largest_task_loss,
            anytime=anytime,
        )
    )
    response = call_alignment(target, lambda stub: stub.CompareRuns(request), failed=FAILED)
    left_out += gold.left_out if gold else []
    tell(left_out)
    changes = setup_changes({run.name: run.setups for run in runs})
    if changes and gold is None and not despite_changes and response.gate == compare_pb2.GATE_GO:
        response.gate = compare_pb2.GATE_INCONCLUSIVE
        response.gate_reasons.append(WITHHELD)
    chosen: dict[str, Any] = {
        "baseline": request.baseline,
        "value": "agrees with people" if gold is not None else runs[0].comparability.value,
        "labelled": gold is not None,
        "margin": margin,
        "confidence_level": level,
        "largest_task_loss": response.largest_task_loss if response.HasField("largest_task_loss") else None,
        "anytime": anytime,
        "power": power,
        "policy": policy,
        "gate_scope": "every-criterion" if every_criterion else "all-items",
        "permutations": permutations,
        "seed": seed,
        "setup_changes": changes,
    }
    if as_json:
        print_json({**chosen, **report.as_json(response)}, left_out)
    else:
        shares = gold is not None or runs[0].comparability.shares
        console = output()
        report.print_comparison(response, chosen, runs, console, shares=shares)
        tell_next("report", *results, "--out", "changes.html")
    raise typer.Exit(EXIT_CODES[response.gate])


def _read(results: Sequence[str], target: str | None, *, by_sample: bool) -> list[Run]:
    try:
        with ExitStack() as stack:
            paths = [stack.enter_context(find_results(one, target).files()) for one in results]
            names = [path.name or str(path) for path in paths]
            if len(set(names)) < len(names):
                names = [str(path) for path in paths]
            if len(set(names)) < len(names):
                raise typer.BadParameter("results are named twice", param_hint="RESULTS")
            return [
                read_run(path, name, by_sample=by_sample) for path, name in zip(paths, names, strict=True)
            ]
    except typer.Exit as stopped:
        # A gateway that fails is no NO-GO.
        raise typer.Exit(FAILED if stopped.exit_code == 1 else stopped.exit_code) from stopped
    except (RunsError, LineError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}")


def _request(runs: list[Run], gold: HumanLabels | None) -> tuple[compare_pb2.CompareRunsRequest, list[str]]:
    try:
        return comparison(runs, gold)
    except RunsError as error:
        fail(str(error))
