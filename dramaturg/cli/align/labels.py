"""Labels of people: what several annotators say of each item and criterion, as one label."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dramaturg.api.alignment.v1 import agreement_pb2
from dramaturg.cli.align.connection import call_alignment
from dramaturg.cli.align.table import Rows, add_annotations
from dramaturg.summaries.labels import HumanLabels

DISTANCES = {
    "nominal": agreement_pb2.LABEL_DISTANCE_NOMINAL,
    "ordinal": agreement_pb2.LABEL_DISTANCE_ORDINAL,
    "interval": agreement_pb2.LABEL_DISTANCE_INTERVAL,
    "masi": agreement_pb2.LABEL_DISTANCE_MASI,
}
"""The distances of labels by name."""
MORE_THAN_HALF = "more-than-half"
RULES = {
    MORE_THAN_HALF: agreement_pb2.MAJORITY_RULE_MORE_THAN_HALF,
    "plurality": agreement_pb2.MAJORITY_RULE_PLURALITY,
}
"""How the label of an item is found, by the name of the rule."""

Majority = Annotated[str, typer.Option(metavar="RULE", help=f"Majority rule: {', '.join(RULES)}.")]
TieLabel = Annotated[str, typer.Option(metavar="LABEL", help="Label of undecided items. Default: none.")]
Judge = Annotated[
    str, typer.Option(metavar="ANNOTATOR", help="Judge that may take the place of the other annotators.")
]
Epsilon = Annotated[
    float, typer.Option(min=0, max=1, help="By how much the judge may be worse; 0.1 for a crowd, 0.15, 0.2.")
]

_GOOD = {"pass": True, "true": True, "1": True, "fail": False, "false": False, "0": False}


def rule_named(name: str) -> agreement_pb2.MajorityRule.ValueType:
    """A rule by its name.

    Raises:
        typer.BadParameter: There is no such rule.
    """
    if name not in RULES:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(RULES)}", param_hint="--majority")
    return RULES[name]


def read_labels(file: Path, rule: str, tie_label: str, target: str | None, *, failed: int = 1) -> HumanLabels:
    """Reads labels, and has AlignmentService find the one of each item.

    Args:
        file: Rows with item, annotator, label and, where there are several, criterion; or rows with task_id,
            candidate_id and labels by criterion.
        rule: The name of the rule by which annotators decide.
        tie_label: The label of items that they leave undecided; empty: they have none.
        target: Where AlignmentService listens; ``None``: it is started here.
        failed: The exit code where the call fails.

    Raises:
        typer.BadParameter: The file cannot be used, or a label is neither good nor bad.
        typer.Exit: The call failed.
    """
    rows = Rows.read(file).one_label_a_row()
    grouped = "criterion" if rows.has("criterion") else ""
    request = agreement_pb2.MeasureAgreementRequest(
        group_tag=grouped, majority_rule=rule_named(rule), tie_label=tie_label, list_majorities=True
    )
    left_out = add_annotations(request, rows)
    response = call_alignment(target, lambda stub: stub.MeasureAgreement(request), failed=failed)
    labels: dict[tuple[str, str], bool] = {}
    for one in response.majorities:
        if one.label:
            labels[one.id, one.group] = _good(one.label, file)
    return HumanLabels(labels, len(response.majorities) - len(labels), left_out)


def _good(label: str, file: Path) -> bool:
    good = _GOOD.get(label.strip().lower())
    if good is None:
        known = ", ".join(_GOOD)
        raise typer.BadParameter(f"{file.name}: label {label!r} is none of {known}", param_hint="--labels")
    return good
