"""Tables of the detection of planted faults."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.alignment.v1.accuracy_pb2 import AccuracyGroup
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.evaluation.v1.summary_pb2 import FaultFigures, PerturbationFigures
from dramaturg.cli.cells import number
from dramaturg.cli.summaries.cells import interval_cell, value_cell
from dramaturg.cli.tables import Table, print_tables
from dramaturg.cli.terminal import Terminal

ALL = "all"
"""The name of all operations of a category."""
LEGEND = (
    "of judged: of the verdicts that decide; of all: abstentions count as not flagged; if passed: of judged\n"
    "of the scripts that passed unperturbed; J: of all, less the false alarms of all (Youden 1950).\n"
    "Intervals are Wilson's (1927), for the effective number of tasks."
)
"""The legend of the tables."""


def show_perturbations(console: Terminal, found: PerturbationFigures) -> None:
    """Prints the detection by category and operation, and the false alarms by criterion."""
    print_tables(console, _detection_table(found.faults), _alarm_table(found))
    console.print(
        f"{found.fault_count} faults in {found.unperturbed_count} scripts, also judged unperturbed.\n"
        f"{LEGEND}",
        soft_wrap=True,
    )


def _detection_table(faults: Sequence[FaultFigures]) -> Table:
    heads = ("scripts", "judged", "detected", "of judged", "95 %", "if passed", "of all", "95 %", "J")
    table = Table("fault", "made by", figures=heads, title="detected")
    for one in faults:
        table.add_row(
            one.category,
            one.operation or ALL,
            *_counts(one.faults),
            *_rate(one.faults.accuracy_when_answered),
            value_cell(one.passed_unperturbed.accuracy_when_answered),
            *_rate(one.faults.accuracy_abstentions_wrong),
            number(one.youden_j if one.HasField("youden_j") else None),
        )
    return table


def _alarm_table(found: PerturbationFigures) -> Table:
    heads = ("scripts", "judged", "flagged", "of judged", "95 %", "of all", "95 %")
    table = Table("criterion", figures=heads, title="false alarms on the unperturbed")
    for one in found.false_alarms:
        rates = (one.alarms.accuracy_when_answered, one.alarms.accuracy_abstentions_wrong)
        cells = (cell for rate in rates for cell in _rate(rate))
        table.add_row(one.criterion, *_counts(one.alarms), *cells)
    return table


def _counts(group: AccuracyGroup) -> Sequence[str]:
    return [str(count) for count in (group.item_count, group.answered_count, group.correct_count)]


def _rate(rate: Estimate) -> tuple[str, str]:
    return value_cell(rate), interval_cell(rate)
