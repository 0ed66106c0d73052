"""The tables of ABSEval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dramaturg.api.alignment.v1 import accuracy_pb2, ranking_pb2
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.evaluation.v1.summary_pb2 import PerturbationFigures, Summary
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.meta_evaluation.rules import Category
from dramaturg.results.gold_answers import describe_missing
from dramaturg.results.groups import BASE
from dramaturg.results.names import ALL as ALL_CRITERIA
from dramaturg.tables.model import ABSENT, Cell, Column, Row, Table
from dramaturg_research.ablations.variants import VARIANTS
from dramaturg_research.reproduction.abseval.printed import ALL, NAMES, TABLE_2, TABLE_3, TABLE_4, TABLE_5
from dramaturg_research.reproduction.abseval.rates import (
    MODEL_GROUP,
    SHORT,
    SIZES,
    STEPS_TAG,
    Rates,
    agreement_of,
    find_figures,
    model_groups,
    pass_rate,
    size_of,
)
from dramaturg_research.reproduction.cells import average, count, estimate, number, words
from dramaturg_research.reproduction.session import Session

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub


AGENTS, SINGLE = "agents", "single-judge"
"""The runs, by mechanism."""
BERTSCORE = "bertscore"
"""The text metric that needs an encoder."""
METRICS = ("rouge-1", "rouge-2", "rouge-l", "bleu", "chrf", BERTSCORE)
"""The text metrics of Figure 6."""

_DIGITS = 3
# Section A.4: the criteria of Figure 12.
_BY_LENGTH = ("order_correct", "executable", "no_redundant_steps", "satisfies_constraints")
# Section 4.2: the annotated scripts.
_ANNOTATED = 200


Agreement = Mapping[str, Mapping[str, accuracy_pb2.AccuracyGroup]]
"""The agreement of variants of the judges with people: by variant, then by criterion or ``ALL_CRITERIA``."""


class Scores(NamedTuple):
    """The scores of written scripts by text metrics."""

    items: Sequence[ranking_pb2.RankedItem]
    method: str
    """How BERTScore was computed."""
    missing: str
    """Why BERTScore is missing. Empty: it is not."""


def table_3(agreement: Agreement) -> Table:
    """The accuracy of the critic by source of the gold answer, against people, above the printed one."""
    sources = {BASE: "Answer Synthesize", "direct-gold-answer": "the judge alone"}
    rows = [
        Row([words(f"{name} (this run)"), *(_accuracy(agreement[variant], one) for one in ABSEVAL[:3])])
        for variant, name in sources.items()
        if variant in agreement
    ]
    rows += [
        Row([words(f"{name} (paper)"), *(number(float(cell), _DIGITS) for cell in cells)], ruled=not index)
        for index, (name, *cells) in enumerate(TABLE_3)
    ]
    return Table(
        "Table 3: Accuracy by source of the gold answer",
        [Column("Gold answer generation"), Column("NM"), Column("NR"), Column("ND")],
        rows,
        name="table-3",
        notes=[] if agreement else ["As printed: labels of people (--labels) are needed for others."],
    )


def _accuracy(groups: Mapping[str, accuracy_pb2.AccuracyGroup], criterion: str) -> Cell:
    return estimate(groups[criterion].accuracy_when_answered if criterion in groups else None, _DIGITS)


def missing_gold_answers(summary: Summary) -> Sequence[str]:
    """The note on samples that were judged without their gold answer. Empty: there are none."""
    described = describe_missing(summary.scripts.gold_answers)
    return [f"{described}."] if described else []


async def _rank(
    service: AlignmentServiceAsyncStub,
    methods: Mapping[str, Rates],
    more: Sequence[ranking_pb2.RankedItem] = (),
) -> ranking_pb2.RankGroup:
    """Ranks models by the unweighted mean of their rates, by each method, and by the scores of more items."""
    request = ranking_pb2.RankSystemsRequest(macro_tag="criterion")
    models = dict.fromkeys(model for rates in methods.values() for model in rates)
    for model in models:
        for place, criterion in enumerate(ABSEVAL):
            scores = {name: rates[model][place] for name, rates in methods.items() if model in rates}
            request.items.add(
                id=criterion,
                system=model,
                scores={name: value for name, value in scores.items() if value is not None},
                tags={"criterion": criterion},
            )
    request.items.extend(more)
    return (await service.RankSystems(request)).groups[0]


def _ranks(group: ranking_pb2.RankGroup, method: str) -> Mapping[str, float | None]:
    found = next((one for one in group.methods if one.method == method), ranking_pb2.MethodRanking())
    return {one.system: one.rank if one.HasField("rank") else None for one in found.systems}


def _rank_cell(rank: float | None, printed: str = "") -> Cell:
    return number(rank, 0 if rank is None or rank == int(rank) else 1, printed)


async def _printed_errors(
    service: AlignmentServiceAsyncStub, recovered: Mapping[str, Any]
) -> Mapping[str, Mapping[str, Estimate]]:
    """The squared errors that follow from Figure 7, by mechanism and over "all" and "six" criteria."""
    line = recovered["fig6_line_plot.svg"]
    names, errors = line["metrics"], {}
    for mechanism, member in (("ABSEval", "ABSEval"), ("Single-LLM", "Single Agent")):
        request = accuracy_pb2.MeasureAccuracyRequest(macro_tag="criterion")
        for criterion, accuracy in zip(names, line[member], strict=True):
            right = round(_ANNOTATED * accuracy)
            for script in range(_ANNOTATED):
                request.items.add(
                    gold="1", predicted="1" if script < right else "0", tags={"criterion": criterion}
                )
        request.subsets.add(
            name="six", tag="criterion", values=[name for name in names if name != SHORT["executable"]]
        )
        groups = (await service.MeasureAccuracy(request)).groups
        errors[mechanism] = {
            group.subset: group.policies[0].macro_mean_squared_error for group in groups if not group.tags
        }
    return errors


async def table_2(
    service: AlignmentServiceAsyncStub,
    recovered: Mapping[str, Any] | None,
    session: Session,
    agreement: Agreement,
) -> Table:
    """The squared errors against people, above the printed ones and those that follow from Figure 7."""
    errors = {} if recovered is None else await _printed_errors(service, recovered)
    rows = [
        Row([words(_judges(session, role)), words(mechanism), *_squared_errors(agreement[variant])])
        for variant, mechanism, role in (
            (BASE, "ABSEval", "critic"),
            ("single-judge", "Single-LLM", "script-judge"),
        )
        if variant in agreement
    ]
    rows += [
        Row(
            [
                words(f"{model} (paper)"),
                words(mechanism),
                number(float(printed), _DIGITS),
                words(ABSENT),
                *(
                    estimate(errors[mechanism][subset], 4)
                    if errors and model == TABLE_2[0][0]
                    else number(None, 4)
                    for subset in ("all", "six")
                ),
            ]
        )
        for model, mechanism, printed in TABLE_2
    ]
    return Table(
        "Table 2: Mean squared error against people",
        [
            Column("LLM"),
            Column("Mechanism"),
            Column("MSE"),
            Column("n"),
            Column("seven criteria", "From Figure 7"),
            Column("six criteria", "From Figure 7"),
        ],
        rows,
        name="table-2",
        heads=2,
        notes=[
            f"Computed from the accuracies of Figure 7 on {_ANNOTATED} scripts; six criteria: without EX.",
            "Of labels that are 0 or 1, the squared error is one less the accuracy.",
            "The printed 0.087 and 0.257 follow from no five to seven of the criteria of Figure 7.",
        ],
    )


def _judges(session: Session, role: str) -> str:
    return session.judge_model(role) or "the service's model"


def _squared_errors(groups: Mapping[str, accuracy_pb2.AccuracyGroup]) -> Sequence[Cell]:
    """One less the accuracy, its interval turned, and the number of labels."""
    found = groups[ALL_CRITERIA].accuracy_when_answered if ALL_CRITERIA in groups else Estimate()
    turned = Estimate(count=found.count)
    if found.HasField("value"):
        turned.value = 1 - found.value
    if found.HasField("lower") and found.HasField("upper"):
        turned.lower, turned.upper = 1 - found.upper, 1 - found.lower
    return [estimate(turned, _DIGITS), count(found.count), words(ABSENT), words(ABSENT)]


def table_4(perturbed: Summary | None, notes: Sequence[str]) -> Table:
    """The detection of faults by category; the printed one alone without a run.

    Args:
        perturbed: The figures of the run.
        notes: How the faults were made.
    """
    if perturbed is None or not perturbed.scripts.HasField("perturbations"):
        return Table(
            "Table 4: Accuracy on perturbations, as printed",
            [Column("Perturbations category"), Column("Acc.")],
            [Row([words(cell) for cell in row]) for row in TABLE_4],
            name="table-4",
        )
    found: PerturbationFigures = perturbed.scripts.perturbations
    faults = {one.category: one for one in found.faults if not one.operation}
    alarms = {one.criterion: one.alarms for one in found.false_alarms}
    rows = []
    for category, (name, printed) in zip(Category, TABLE_4, strict=True):
        one = faults.get(category)
        detected = one.faults.accuracy_when_answered if one is not None else None
        before = one.passed_unperturbed.accuracy_when_answered if one is not None else None
        alarm = alarms[category.criterion].accuracy_when_answered if category.criterion in alarms else None
        rows.append(
            Row(
                [
                    words(name),
                    estimate(detected, _DIGITS, printed),
                    count(one.faults.item_count if one is not None else 0),
                    estimate(before, _DIGITS),
                    estimate(alarm, _DIGITS),
                ]
            )
        )
    return Table(
        "Table 4: Accuracy on perturbations",
        [
            Column("Perturbations category"),
            Column("Acc."),
            Column("Scripts"),
            Column("Acc. if passed unchanged"),
            Column("False alarms"),
        ],
        rows,
        name="table-4",
        notes=[
            *notes,
            "Acc.: the share of scripts with the fault that fail its criterion.",
            "False alarms: the share of unchanged scripts that fail the criterion; the paper states none.",
            "Verdicts that abstain are left out.",
            *missing_gold_answers(perturbed),
        ],
    )


async def table_5(
    service: AlignmentServiceAsyncStub,
    session: Session,
    summaries: Mapping[str, Summary],
    rates: Mapping[str, Rates],
    printed: Rates,
) -> Table:
    """The rates and ranks of the models of a run, above those of the paper."""
    rows: list[Row] = []
    notes = [
        f"{', '.join(f'{short}: {NAMES[short]}' for short in SHORT.values())}.",
        "Rank: by the unweighted mean of the seven rates, as in the paper.",
    ]
    if summaries:
        ranks = _ranks(await _rank(service, {AGENTS: rates[AGENTS]}), AGENTS)
        pooled = {one.model: one.rank or None for one in summaries[AGENTS].leaderboard}
        for model in session.models:
            cells = [
                estimate(pass_rate(find_figures(summaries[AGENTS], one, model)), _DIGITS) for one in ABSEVAL
            ]
            placed = [_rank_cell(ranks.get(model)), _rank_cell(pooled.get(model))]
            rows.append(Row([words(model), *placed, words(size_of(model)), *cells]))
        everything = (estimate(pass_rate(find_figures(summaries[AGENTS], one)), _DIGITS) for one in ABSEVAL)
        rows.append(Row([words("ALL"), words("-"), words("-"), words("-"), *everything], ruled=True))
        abstained = ", ".join(
            f"{count} {reason}" for reason, count in sorted(summaries[AGENTS].abstentions_by_reason.items())
        )
        notes.append(f"Verdicts that abstain are left out: {abstained or 'none'}.")
        notes += [
            *missing_gold_answers(summaries[AGENTS]),
            "Pooled rank: by the share of all verdicts that pass, which the leaderboard of a run has.",
        ]
    ranks = _ranks(await _rank(service, {"printed": printed}), "printed")
    for index, (model, line) in enumerate(TABLE_5.items()):
        rank, size, *values = line.split()
        cells = [number(float(value), _DIGITS) for value in values]
        rows.append(
            Row(
                [
                    words(f"{model.removesuffix(f' {size}')} (paper)"),
                    _rank_cell(ranks[model], rank),
                    words(ABSENT),
                    words(size),
                    *cells,
                ],
                ruled=not index,
            )
        )
    all_cells = (
        average([number(value, _DIGITS) for value in values], _DIGITS, given)
        for values, given in zip(zip(*printed.values(), strict=True), ALL.split(), strict=True)
    )
    rows.append(Row([words("ALL (paper)"), words("-"), words("-"), words("-"), *all_cells], ruled=True))
    return Table(
        "Table 5: Share of scripts that meet each criterion",
        [
            Column("Model Name"),
            Column("Rank"),
            Column("Pooled rank"),
            Column("Size"),
            *map(Column, SHORT.values()),
        ],
        rows,
        name="table-5",
        notes=notes,
        printed_note="In brackets: the printed rank and the printed mean; those beside them follow from the "
        "printed rates.",
    )


def figure_5(session: Session, summary: Summary, printed: Mapping[str, Any] | None) -> Table:
    """The rates of the models of each size, beside those recovered from the paper's figure."""
    groups = model_groups(session.models)
    rows = []
    for size in SIZES:
        models = [model for model, group in groups.items() if group == size]
        shown = {} if printed is None else {short: printed[short] for short in SHORT.values()}
        place = -1 if printed is None else printed["order"].index(size)
        cells = [
            estimate(
                pass_rate(find_figures(summary, criterion, **{MODEL_GROUP: size})),
                _DIGITS,
                str(shown[short][place]) if shown else "",
            )
            for criterion, short in SHORT.items()
        ]
        rows.append(Row([words(size), words(", ".join(models) or "none"), *cells]))
    return Table(
        "Figure 5: Rates by model size and criterion",
        [Column("Size"), Column("Models"), *map(Column, SHORT.values())],
        rows,
        name="figure-5",
        heads=2,
        notes=[
            "Sizes are read from the names of models.",
            "Billions of parameters: 7b below 10, 13b below 30, 40b below 60, 70b from 60; 8x7B is 56.",
            "Models whose names have no size are left out.",
            *missing_gold_answers(summary),
        ],
    )


async def figure_6(
    service: AlignmentServiceAsyncStub, rates: Mapping[str, Rates], scores: Scores
) -> tuple[Table, Table]:
    """The ranks of models by the judges and by text metrics, and the rank correlations of those.

    Returns:
        ``figure-6``, a column for each metric, and ``figure-6-correlations``, a row for each metric.
    """
    group = await _rank(service, rates, scores.items)
    scored = [name for name in METRICS if any(name in item.scores for item in scores.items)]
    ranks = {name: _ranks(group, name) for name in (*rates, *scored)}
    rows = [
        Row([words(model), *(_rank_cell(found.get(model)) for found in ranks.values())])
        for model in rates[AGENTS]
    ]
    return (
        Table(
            "Figure 6: Ranks of models by evaluation metric",
            [Column("Model Name"), *map(Column, ranks)],
            rows,
            name="figure-6",
            notes=[
                "Text metrics compare a script with CoScript's for the task; missing scripts are left out.",
                *([] if scores.missing else [f"{BERTSCORE}: {scores.method}."]),
            ],
        ),
        _correlations(group, list(ranks), list(rates)),
    )


def _correlations(group: ranking_pb2.RankGroup, metrics: Sequence[str], judges: Sequence[str]) -> Table:
    """A row for each metric, and the correlations of its ranks with those of each mechanism of judges."""
    found = {frozenset((one.first_method, one.second_method)): one for one in group.correlations}
    rows = []
    for metric in metrics[1:]:
        cells = [words(metric)]
        for judge in judges:
            one = found.get(frozenset((metric, judge)), ranking_pb2.RankCorrelation())
            cells += [estimate(one.kendall, _DIGITS), estimate(one.spearman, _DIGITS)]
        rows.append(Row(cells))
    return Table(
        "Figure 6: Rank correlations of the evaluation metrics",
        [
            Column("Metric"),
            *(Column(name, judge) for judge in judges for name in ("Kendall's tau", "Spearman's rho")),
        ],
        rows,
        name="figure-6-correlations",
        notes=["They are not defined for fewer than three models."],
    )


def figure_12(summary: Summary, by_quarter: Summary, quarters: Sequence[str]) -> Table:
    """The rates of the criteria of section A.4 by quarters of the number of steps.

    Args:
        summary: The figures of the run.
        by_quarter: Those of its scripts with the quarter as the number of steps.
        quarters: The quarters in ascending order.
    """
    rows = []
    for quarter in quarters:
        found = [find_figures(by_quarter, criterion, **{STEPS_TAG: quarter}) for criterion in _BY_LENGTH]
        scripts = found[0].verdict_count if found[0] is not None else 0
        rows.append(
            Row([words(quarter), count(scripts), *(estimate(pass_rate(one), _DIGITS) for one in found)])
        )
    return Table(
        "Figure 12: Rates by the number of steps",
        [Column("Steps"), Column("Scripts"), *(Column(NAMES[SHORT[one]]) for one in _BY_LENGTH)],
        rows,
        name="figure-12",
        notes=[
            "All models together, in quarters by the number of steps. Verdicts that abstain are left out.",
            "Refusals and answers without steps are left out.",
            "Scripts of equal numbers stay together: groups may differ in size and be fewer than four.",
            "The paper prints no values.",
            *missing_gold_answers(summary),
        ],
    )


def ablations_table(summary: Summary) -> Table:
    """The rates of each variant of the judges, and its agreement with the base."""
    rows = []
    for name in VARIANTS:
        rates = (
            estimate(pass_rate(find_figures(summary, criterion, variant=name)), _DIGITS)
            for criterion in ABSEVAL
        )
        shares = (estimate(agreement_of(summary, name, criterion), _DIGITS) for criterion in ABSEVAL)
        rows.append(Row([words(name), *rates, *shares]))
    return Table(
        "Figures 4 and 7: Variants of the judges",
        [
            Column("Variant"),
            *(Column(name, "share that meets") for name in SHORT.values()),
            *(Column(name, "agreement with base") for name in SHORT.values()),
        ],
        rows,
        name="ablations",
        notes=[
            "The base has the agents and the pooled gold answer. The paper's agreement is with people.",
            *missing_gold_answers(summary),
        ],
    )


def people_table(agreement: Agreement) -> Table:
    """The accuracy of each variant of the judges against people, by criterion."""
    rows = [
        Row([words(name), *(_accuracy(agreement[name], one) for one in (*ABSEVAL, ALL_CRITERIA))])
        for name in VARIANTS
        if name in agreement
    ]
    return Table(
        "Tables 2 and 3, Figures 4 and 7: Accuracy of variants of the judges against people",
        [Column("Variant"), *map(Column, SHORT.values()), Column("all criteria")],
        rows,
        name="ablations-people",
        notes=["Verdicts that abstain are left out."],
    )
