"""``dramaturg compare``: whether a run may take another's place."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from dramaturg.api.alignment.v1 import accuracy_pb2, compare_pb2
from dramaturg.cli.align.options import (
    Level,
    Resamples,
    Seed,
    call_alignment,
    interval_methods,
    print_json,
    tell,
)
from dramaturg.cli.align.table import MORE_THAN_HALF, Majority, TieLabel, read_labels
from dramaturg.cli.lazy_group import MORE
from dramaturg.cli.options import AlignmentTarget, AsJson, LargestTaskLoss
from dramaturg.cli.platform import fail, output
from dramaturg.cli.show import HELP, find_results
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import Terminal, tell_next
from dramaturg.datasets.json_lines import LineError
from dramaturg.results.setups import setup_changes
from dramaturg.summaries.comparison import (
    CRITERION,
    SAMPLE,
    Run,
    RunsError,
    comparison,
    outcome_flips,
    read_run,
)
from dramaturg.summaries.estimates import figures, rests_on
from dramaturg.summaries.labels import HumanLabels
from dramaturg.tables.comparison import GATES, differences, policy_name


def comparison_values(response: compare_pb2.CompareRunsResponse) -> dict[str, Any]:
    """The gate and all comparisons as JSON values."""
    return {
        "gate": GATES[response.gate],
        "gate_reasons": list(response.gate_reasons),
        "comparisons": [
            {
                "group": one.group,
                "system": one.system,
                "items": one.item_count,
                "unpaired": one.unpaired_count,
                "clusters": one.cluster_count,
                "baseline_abstained": one.baseline_abstained_count,
                "abstained": one.abstained_count,
                "decided": one.decided,
                "policies": {policy_name(part.policy): _policy(part) for part in one.policies},
            }
            for one in response.comparisons
        ],
    }


_LOSSES = 3
NOT_AGREEMENT = (
    "Equal rates are not agreement: runs with equal rates can differ on every item. For the agreement of two "
    "judges use 'dramaturg judges compare'."
)
"""The limit of the figures where runs are not compared with labels."""


def print_comparison(
    response: compare_pb2.CompareRunsResponse,
    chosen: Mapping[str, Any],
    runs: Sequence[Run],
    console: Terminal,
    *,
    shares: bool,
) -> None:
    """Prints what differs between the judges, the differences, the worst losses, and the gate.

    Args:
        response: The comparison.
        chosen: What the command prints of its options as JSON.
        runs: The runs, the baseline first.
        console: Where to print.
        shares: Whether values are verdicts, whose means are shares.
    """
    for change in chosen["setup_changes"]:
        console.print(f"the setup changed: {change}", style="yellow")
    limits = [] if chosen["labelled"] else [NOT_AGREEMENT]
    value = f"{chosen['value']}; margin {chosen['margin']:g}; abstentions for the gate: {chosen['policy']}"
    table = differences(response, shares=shares, gated=True)
    print_tables(console, table, value, *limits, *interval_methods(response), *response.gate_reasons)
    _print_losses(runs, console)
    console.print(GATES[response.gate], style="bold")


def _print_losses(runs: Sequence[Run], console: Terminal) -> None:
    """Prints the three items that lost most against the baseline. Nothing where none lost."""
    losses = (
        (float(before.value) - float(after.value), run.name, key, before, after)
        for run, key, before, after in outcome_flips(runs)
        if before.value is not None and after.value is not None and before.value > after.value
    )
    found = heapq.nlargest(_LOSSES, losses, key=lambda one: one[0])
    if found:
        console.print("the worst losses:", style="bold")
    for _, name, key, before, after in found:
        item = " ".join(part for part in key if part)
        console.print(f"  {name}: {item}: {before.outcome()} to {after.outcome()}", soft_wrap=True)


def _policy(part: compare_pb2.PolicyComparison) -> dict[str, Any]:
    return {
        **rests_on(part.difference),
        **figures(part, ("baseline_mean", "system_mean", "difference")),
        "lower_bound": part.lower_bound if part.HasField("lower_bound") else None,
        "lower_bound_method": part.lower_bound_method or None,
        "better": part.better_count,
        "worse": part.worse_count,
        "p": part.p_value if part.HasField("p_value") else None,
        "p_holm": part.adjusted_p_value if part.HasField("adjusted_p_value") else None,
        "p_benjamini_hochberg": (
            part.false_discovery_p_value if part.HasField("false_discovery_p_value") else None
        ),
        "test": part.test,
        "minimum_detectable_effect": (
            part.minimum_detectable_effect if part.HasField("minimum_detectable_effect") else None
        ),
        "gate": GATES[part.gate],
        "gate_corrected": GATES.get(part.corrected_gate),
        "interval_method": part.difference.interval_method or None,
    }


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
        print_json({**chosen, **comparison_values(response)}, left_out)
    else:
        shares = gold is not None or runs[0].comparability.shares
        console = output()
        print_comparison(response, chosen, runs, console, shares=shares)
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
