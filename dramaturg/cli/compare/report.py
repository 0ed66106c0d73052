"""Shows what CompareRuns answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dramaturg.api.alignment.v1 import compare_pb2
from dramaturg.cli.align.report import WHOLE, interval_methods, policy_name, shown
from dramaturg.cli.cells import number
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import Terminal
from dramaturg.summaries.estimates import figures, rests_on
from dramaturg.tables.cells import p_value
from dramaturg.tables.model import Table, columns

_GATES = {
    compare_pb2.GATE_GO: "GO",
    compare_pb2.GATE_NO_GO: "NO-GO",
    compare_pb2.GATE_INCONCLUSIVE: "INCONCLUSIVE",
}


def as_json(response: compare_pb2.CompareRunsResponse) -> dict[str, Any]:
    """The gate and all comparisons as JSON values."""
    return {
        "gate": _GATES[response.gate],
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


NOT_AGREEMENT = (
    "Equal rates are not agreement: runs with equal rates can differ on every item. For the agreement of two "
    "judges use 'dramaturg judges compare'."
)
"""The limit of the figures where runs are not compared with labels."""


def print_comparison(
    response: compare_pb2.CompareRunsResponse, chosen: Mapping[str, Any], console: Terminal
) -> None:
    """Prints what differs between the judges, a line for each comparison under each policy, and the gate.

    Without abstentions all policies give the same figures, and one line is printed.
    """
    for change in chosen["setup_changes"]:
        console.print(f"the setup changed: {change}", style="yellow")
    heads = (
        "baseline",
        "run's",
        "difference",
        "lower bound",
        "p (Holm)",
        "p (BH)",
        "detectable",
        "n",
        "gate",
    )
    table = Table("", columns("criterion", "run", "abstentions", figures=heads))
    # Corrections are of all comparisons under a policy: abstentions of one tell the policies of all apart.
    abstained = any(one.baseline_abstained_count + one.abstained_count for one in response.comparisons)
    for one in response.comparisons:
        for part in one.policies if abstained else one.policies[:1]:
            effect = part.minimum_detectable_effect
            table.add_row(
                one.group or WHOLE,
                one.system,
                policy_name(part.policy) if abstained else "none",
                shown(part.baseline_mean),
                shown(part.system_mean),
                shown(part.difference),
                number(part.lower_bound) if part.HasField("lower_bound") else "",
                p_value(part.adjusted_p_value) if part.HasField("adjusted_p_value") else "",
                p_value(part.false_discovery_p_value) if part.HasField("false_discovery_p_value") else "",
                number(effect) if part.HasField("minimum_detectable_effect") else "",
                f"{part.difference.count}/{part.difference.total}",
                _gate_cell(part),
            )
    limits = [] if chosen["labelled"] else [NOT_AGREEMENT]
    value = f"{chosen['value']}; margin {chosen['margin']:g}; abstentions for the gate: {chosen['policy']}"
    print_tables(console, table, value, *limits, *interval_methods(response), *response.gate_reasons)
    console.print(_GATES[response.gate], style="bold")


def _gate_cell(part: compare_pb2.PolicyComparison) -> str:
    """The corrected decision; a GO that is not corrected, or does not survive the correction, says so."""
    if part.gate == compare_pb2.GATE_GO != part.corrected_gate:
        return f"{_GATES[part.gate]} (uncorrected)"
    return _GATES[part.gate]


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
        "gate": _GATES[part.gate],
        "gate_corrected": _GATES.get(part.corrected_gate),
        "interval_method": part.difference.interval_method or None,
    }
