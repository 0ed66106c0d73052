"""Shows what CompareRuns answered."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

from dramaturg.api.alignment.v1 import compare_pb2
from dramaturg.cli.align.report import interval_methods
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.summaries.comparison import Run, outcome_flips
from dramaturg.summaries.estimates import figures, rests_on
from dramaturg.tables.comparison import GATES, differences, policy_name


def as_json(response: compare_pb2.CompareRunsResponse) -> dict[str, Any]:
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
