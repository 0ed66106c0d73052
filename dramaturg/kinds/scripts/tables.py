"""Figures of verdicts on scripts (ABSEval, Table 5 and Figures 5, 9, 10 and 12)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.alignment.v1.accuracy_pb2 import AccuracyGroup
from dramaturg.api.evaluation.v1.summary_pb2 import (
    PerturbationFigures,
    Summary,
    VariantAgreement,
)
from dramaturg.tables.common import missing_gold_answers, ranking_lead
from dramaturg.tables.model import (
    SHARES,
    Cell,
    Column,
    Section,
    Table,
    columns,
    count,
    estimate_cell,
    figure,
    matrix,
    optional,
    percent,
    percent_of,
    samples_link,
)
from dramaturg.tables.verdicts import (
    ALL,
    by_model_table,
    commonest_fault,
    criteria_repeats,
    criteria_table,
    finding_sections,
    group_sections,
    panel_sections,
)

show_mean = percent_of


def lead(summary: Summary) -> str:
    """The sentence that opens the report."""
    return ranking_lead(
        summary,
        lambda one: f"passes {percent(one.mean)} of {one.judged_count:,} verdicts",
        percent_of,
        lambda model: commonest_fault(summary.scripts.figures, model),
    )


def sections(summary: Summary) -> Iterator[Section]:
    """Criteria, criterion by model, each group by model and by criterion, panels, and repeats."""
    figures = summary.scripts.figures
    whole = [one for one in figures if not one.tags]
    note = f"PASS among PASS and FAIL, over {summary.scripts.candidate_count:,} candidates of all models."
    yield Section("Criteria", [criteria_table([one for one in whole if one.all_models])], note)
    models = list(dict.fromkeys(one.model for one in whole if not one.all_models))
    if models:
        yield Section(
            "Criterion by model", [by_model_table(whole, models)], "The share of PASS among PASS and FAIL."
        )
    yield from group_sections(summary.options, figures)
    yield from panel_sections(summary.scripts.panels, "candidates")
    yield from criteria_repeats(figures)
    yield from finding_sections(summary.scripts.findings, "candidates")
    yield from missing_gold_answers(summary.scripts.gold_answers)
    if summary.scripts.variants:
        yield Section(
            "Variants",
            [_variants(summary.scripts.variants)],
            "The share of verdicts equal to those of the variant base, of those that decide.",
        )
    if summary.scripts.HasField("perturbations"):
        yield perturbation_section(summary.scripts.perturbations)


def _variants(found: Sequence[VariantAgreement]) -> Table:
    cells = {(one.variant, one.criterion): one.agreement for one in found}
    criteria = list(dict.fromkeys(one.criterion for one in found if one.criterion))

    def cell(variant: str, criterion: str) -> Cell | None:
        one = cells.get((variant, "" if criterion == ALL else criterion))
        return one and estimate_cell(
            one.accuracy_when_answered, samples_link({"variant": variant}), heat=True
        )

    rows = [([Cell(name)], name) for name in dict.fromkeys(one.variant for one in found)]
    return matrix("Verdicts equal to the base's by variant", ["variant"], rows, [*criteria, ALL], cell)


def perturbation_section(found: PerturbationFigures) -> Section:
    """The detection of planted faults by category and operation, and the false alarms by criterion."""
    heads = (
        "scripts",
        "judged",
        "flagged",
        Column("of judged", interval=SHARES),
        Column("of all", interval=SHARES),
    )
    faults = Table(
        "Detection by fault",
        columns("fault", "made by", figures=(*heads, Column("if passed before", interval=SHARES), "J")),
    )
    for one in found.faults:
        faults.add_row(
            one.category,
            one.operation or ALL,
            *_flags(one.faults),
            estimate_cell(one.passed_unperturbed.accuracy_when_answered),
            figure(optional(one, "youden_j"), 3),
        )
    alarms = Table("False alarms by criterion", columns("criterion", figures=heads))
    for alarm in found.false_alarms:
        alarms.add_row(alarm.criterion, *_flags(alarm.alarms))
    return Section(
        "Planted faults",
        [faults, alarms],
        f"{found.fault_count:,} faults in {found.unperturbed_count:,} scripts, which are also judged "
        "unperturbed. Of judged: of the verdicts that decide. Of all: abstentions count as not flagged. If "
        "passed before: of judged, of the scripts that pass unperturbed. J: detection of all less false "
        "alarms of all (Youden 1950). Intervals are Wilson's (1927), for the effective number of tasks.",
    )


def _flags(group: AccuracyGroup) -> Sequence[Cell]:
    return [
        count(group.item_count),
        count(group.answered_count),
        count(group.correct_count),
        estimate_cell(group.accuracy_when_answered),
        estimate_cell(group.accuracy_abstentions_wrong),
    ]
