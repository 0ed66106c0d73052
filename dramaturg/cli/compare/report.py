"""Shows what CompareRuns answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from dramaturg.api.alignment.v1 import accuracy_pb2, compare_pb2
from dramaturg.cli.align.judged import KINDS
from dramaturg.cli.align.report import figures, new_table, print_tables, rests_on, shown

_GATES = {
    compare_pb2.GATE_GO: "GO",
    compare_pb2.GATE_NO_GO: "NO-GO",
    compare_pb2.GATE_INCONCLUSIVE: "INCONCLUSIVE",
}


def policy_name(policy: accuracy_pb2.AbstentionPolicy.ValueType) -> str:
    """A policy as it is shown, such as "worst-case"."""
    name = accuracy_pb2.AbstentionPolicy.Name(policy).removeprefix("ABSTENTION_POLICY_")
    return name.lower().replace("_", "-")


def value_name(kind: str, *, labelled: bool) -> str:
    """What the values of an evaluation say, in words."""
    return "agrees with people" if labelled else KINDS[kind].value


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
                "policies": {policy_name(part.policy): _policy(part) for part in one.policies},
            }
            for one in response.comparisons
        ],
    }


def print_comparison(
    response: compare_pb2.CompareRunsResponse, chosen: Mapping[str, Any], console: Console
) -> None:
    """Prints a line for each comparison under each policy, and what the gate says."""
    table = new_table(
        "criterion",
        "run",
        "abstentions",
        "baseline",
        "run's",
        "difference",
        "p (Holm)",
        "detectable",
        "n",
        "gate",
    )
    for one in response.comparisons:
        for part in one.policies:
            p = f"{part.adjusted_p_value:.4f}" if part.HasField("adjusted_p_value") else ""
            effect = part.minimum_detectable_effect
            table.add_row(
                escape(one.group) or "all",
                escape(one.system),
                policy_name(part.policy),
                shown(part.baseline_mean),
                shown(part.system_mean),
                shown(part.difference),
                p,
                f"{effect:.3f}" if part.HasField("minimum_detectable_effect") else "",
                f"{part.difference.count}/{part.difference.total}",
                _GATES[part.gate],
            )
    print_tables(console, table)
    console.print(
        f"{chosen['value']}; margin {chosen['margin']:g}; abstentions for the gate: {chosen['policy']}",
        markup=False,
        highlight=False,
    )
    for reason in response.gate_reasons:
        console.print(reason, markup=False, highlight=False)
    console.print(_GATES[response.gate], style="bold", highlight=False)


def _policy(part: compare_pb2.PolicyComparison) -> dict[str, Any]:
    return {
        **rests_on(part.difference),
        **figures(part, ("baseline_mean", "system_mean", "difference")),
        "better": part.better_count,
        "worse": part.worse_count,
        "p": part.p_value if part.HasField("p_value") else None,
        "p_holm": part.adjusted_p_value if part.HasField("adjusted_p_value") else None,
        "test": part.test,
        "minimum_detectable_effect": (
            part.minimum_detectable_effect if part.HasField("minimum_detectable_effect") else None
        ),
        "gate": _GATES[part.gate],
    }
