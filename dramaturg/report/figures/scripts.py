"""Figures of verdicts on scripts (ABSEval, Table 5 and Figures 5, 9, 10 and 12)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.alignment.v1.accuracy_pb2 import AccuracyGroup
from dramaturg.api.evaluation.v1.summary_pb2 import (
    PerturbationFigures,
    Summary,
    VariantAgreement,
    VerdictFigures,
)
from dramaturg.report.figures.common import missing_gold_answers, percent_of, ranking_lead
from dramaturg.report.figures.panels import panel_sections
from dramaturg.report.figures.verdicts import by_model_table, criteria_table
from dramaturg.report.tables import (
    Cell,
    Section,
    Table,
    columns,
    count,
    estimate_cell,
    figure,
    group_key,
    group_rows,
    matrix,
    percent,
    samples_link,
)
from dramaturg.results.groups import by_grouping

_ALL = "all"

show_mean = percent_of


def lead(summary: Summary) -> str:
    """The sentence that opens the report."""
    return ranking_lead(
        summary, lambda one: f"passes {percent(one.mean)} of {one.judged_count:,} verdicts", percent
    )


def sections(summary: Summary) -> Iterator[Section]:
    """Criteria, criterion by model, each group by model and by criterion, and panels."""
    figures = summary.scripts.figures
    whole = [one for one in figures if not one.tags]
    note = f"PASS among PASS and FAIL, over {summary.scripts.candidate_count:,} candidates of all models."
    yield Section("Criteria", [criteria_table([one for one in whole if one.all_models])], note)
    models = list(dict.fromkeys(one.model for one in whole if not one.all_models))
    if models:
        yield Section(
            "Criterion by model", [by_model_table(whole, models)], "The share of PASS among PASS and FAIL."
        )
    for names, rows in by_grouping(summary.options, figures):
        yield _group(names, rows, models)
    yield from panel_sections(summary.scripts.panels, "candidates")
    yield from missing_gold_answers(summary.scripts.gold_answers)
    if summary.scripts.variants:
        yield Section(
            "Variants",
            [_variants(summary.scripts.variants)],
            "The share of verdicts equal to those of the variant base, of those that decide.",
        )
    if summary.scripts.HasField("perturbations"):
        yield _perturbations(summary.scripts.perturbations)


def _variants(found: Sequence[VariantAgreement]) -> Table:
    cells = {(one.variant, one.criterion): one.agreement for one in found}
    criteria = list(dict.fromkeys(one.criterion for one in found if one.criterion))

    def cell(variant: str, criterion: str) -> Cell | None:
        one = cells.get((variant, "" if criterion == _ALL else criterion))
        return one and estimate_cell(
            one.accuracy_when_answered, samples_link({"variant": variant}), heat=True
        )

    rows = [([Cell(name)], name) for name in dict.fromkeys(one.variant for one in found)]
    return matrix("Verdicts equal to the base's by variant", ["variant"], rows, [*criteria, _ALL], cell)


def _perturbations(found: PerturbationFigures) -> Section:
    faults = [
        [
            Cell(one.category),
            Cell(one.operation or _ALL),
            *_flags(one.faults),
            estimate_cell(one.passed_unperturbed.accuracy_when_answered),
            Cell(figure(one.youden_j if one.HasField("youden_j") else None)),
        ]
        for one in found.faults
    ]
    alarms = [[Cell(one.criterion), *_flags(one.alarms)] for one in found.false_alarms]
    heads = ("scripts", "judged", "flagged", "of judged", "of all")
    return Section(
        "Planted faults",
        [
            Table(
                "Detection by fault",
                columns("fault", "made by", figures=(*heads, "if passed before", "J")),
                faults,
                heads=2,
            ),
            Table("False alarms by criterion", columns("criterion", figures=heads), alarms, heads=1),
        ],
        f"{found.fault_count:,} faults in {found.unperturbed_count:,} scripts, which are also judged "
        "unperturbed. J: detection of all less false alarms of all (Youden).",
    )


def _flags(group: AccuracyGroup) -> Sequence[Cell]:
    return [
        count(group.item_count),
        count(group.answered_count),
        count(group.correct_count),
        estimate_cell(group.accuracy_when_answered),
        estimate_cell(group.accuracy_abstentions_wrong),
    ]


def _group(names: Sequence[str], rows: Sequence[VerdictFigures], models: Sequence[str]) -> Section:
    by_model = {
        (group_key(one.tags, names), one.model): one
        for one in rows
        if not one.all_models and not one.criterion
    }
    pooled = {(group_key(one.tags, names), one.criterion): one for one in rows if one.all_models}
    criteria = list(dict.fromkeys(criterion for _, criterion in pooled if criterion))
    keyed = group_rows(names, rows)

    def of_model(key: str, model: str) -> Cell | None:
        one = by_model.get((key, model))
        return one and estimate_cell(one.pass_rate, samples_link(one.tags, model=model), heat=True)

    def of_criterion(key: str, criterion: str) -> Cell | None:
        one = pooled.get((key, criterion))
        return one and estimate_cell(one.pass_rate, samples_link(one.tags, measure=criterion), heat=True)

    title = ", ".join(names).capitalize()
    return Section(
        f"{title} by model and by criterion",
        [
            matrix(f"PASS of judged by {title.lower()} and model", names, keyed, models, of_model),
            matrix(f"PASS of judged by {title.lower()} and criterion", names, keyed, criteria, of_criterion),
        ],
        "The share of PASS among PASS and FAIL, of all criteria by model and of all models by criterion.",
    )
