"""Tables of verdicts, of findings, of panels, and of judges that are asked several times.

A cell on a judge that is asked several times has its mean agreement with itself and the number of judgements
that this rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from dramaturg.api.evaluation.v1.summary_pb2 import (
    FindingFigures,
    PairMethodFigures,
    PanelFigures,
    RatingFigures,
    ReplyPairFigures,
    ScoreFigures,
    SummaryOptions,
    VerdictFigures,
)
from dramaturg.results.groups import by_grouping
from dramaturg.results.names import finding_name
from dramaturg.tables.model import (
    ABSENT,
    SHARES,
    Cell,
    Column,
    Section,
    Table,
    columns,
    count,
    estimate_cell,
    figure,
    group_cells,
    group_key,
    group_rows,
    matrix,
    name_cell,
    optional,
    percent_of,
    samples_link,
    share_cell,
)

_POOLED = "all models"
_SHARE = "The mean share of a judge's repeats with the {} that counts"
_DEVIATION = "1 less the standard deviation of the repeats as a share of half the scale"
_NUMBER = "n: the {} with two or more repeats that judged."


def criteria_repeats(figures: Iterable[VerdictFigures | ScoreFigures]) -> Iterator[Section]:
    """The section of criteria; none where no judge was asked several times."""
    whole = [one for one in figures if not one.tags and one.criterion]
    if not any(one.repeated_count for one in whole):
        return
    cells = {(one.criterion, _POOLED if one.all_models else one.model): one for one in whole}
    models = list(dict.fromkeys(one.model for one in whole if not one.all_models))

    def cell(criterion: str, model: str) -> Cell | None:
        one = cells.get((criterion, model))
        if one is None:
            return None
        link = samples_link(measure=criterion, **({} if one.all_models else {"model": model}))
        return _cell(one, one.verdict_count, link)

    criteria = dict.fromkeys(one.criterion for one in whole)
    rows = [([Cell(criterion)], criterion) for criterion in criteria]
    caption = "Agreement of repeats by criterion and model"
    table = matrix(caption, ["criterion"], rows, [*models, _POOLED], cell)
    note = f"{_SHARE.format('outcome')}; of scores, {_DEVIATION}. {_NUMBER.format('verdicts')}"
    yield Section("Repeats", [table], note)


def reply_repeats(ratings: Iterable[RatingFigures], pairs: Iterable[ReplyPairFigures]) -> Iterator[Section]:
    """The section of ratings and comparisons of replies; none where no judge was asked several times."""
    rated = [
        (
            [name_cell(one.model, samples_link(model=one.model, measure="rating"))],
            _cell(one, None),  # several judges may rate one reply
        )
        for one in ratings
        if not one.tags and one.group == "all"
    ]
    compared = [
        (
            [name_cell(one.first_model), name_cell(one.second_model), name_cell(one.judge)],
            _cell(one, one.win_count + one.tie_count + one.lose_count + one.abstained_count),
        )
        for one in pairs
        if one.group == "all"
    ]
    tables = [
        *_table("ratings", ["model"], rated, f"The mean over all ratings of {_DEVIATION}."),
        *_table("comparisons", ["first", "second", "judge"], compared, f"{_SHARE.format('preference')}."),
    ]
    if tables:
        yield Section("Repeats", tables)


def method_repeats(figures: Iterable[PairMethodFigures]) -> Iterator[Section]:
    """The section of the methods of pairs; none where no judge was asked several times."""
    rows = [
        ([Cell(one.method, link=samples_link(measure=f"win/{one.method}"))], _cell(one, one.pair_count))
        for one in figures
        if not one.tags
    ]
    tables = list(_table("comparisons", ["method"], rows, f"{_SHARE.format('preference')}."))
    if tables:
        yield Section("Repeats", tables)


def _table(
    items: str, names: Sequence[str], rows: Iterable[tuple[Sequence[Cell], Cell | None]], note: str
) -> Iterator[Table]:
    found = [(heads, cell) for heads, cell in rows if cell is not None]
    if not found:
        return
    table = Table(
        f"Agreement of repeats of {items}",
        columns(*names, figures=("agreement",)),
        notes=[f"{note} {_NUMBER.format(items)}"],
    )
    for heads, cell in found:
        table.add_row(*heads, cell)
    yield table


def _cell(
    one: VerdictFigures | ScoreFigures | RatingFigures | ReplyPairFigures | PairMethodFigures,
    total: int | None,
    link: str = "",
) -> Cell | None:
    if not one.repeated_count:
        return None
    text = f"{percent_of(one.repeat_agreement)} (n {one.repeated_count:,})"
    return Cell(text, one.repeat_agreement, judged=one.repeated_count, total=total, link=link)


_SEVERITIES = ("minor", "major", "critical")
ALL = "all"
"""The name of all criteria together."""


def panel_sections(figures: Iterable[PanelFigures], items: str) -> Iterator[Section]:
    """The section of panels; none without panels.

    Args:
        figures: The figures.
        items: What is judged, in the plural.
    """
    found = [one for one in figures if not one.tags]
    if not found:
        return
    scored = any(one.HasField("mean_difference") for one in found)
    heads = (items, "judges differ", "share", *(["mean difference"] if scored else []))
    table = Table("Agreement of panels", columns("criterion", figures=heads))
    for one in found:
        table.add_row(
            Cell(one.criterion, link=samples_link(measure=one.criterion)),
            count(one.text_count),
            count(one.differing_count),
            share_cell(optional(one, "differing_share"), one.text_count, one.text_count),
            *([figure(optional(one, "mean_difference"))] if scored else []),
        )
    note = f"{items.capitalize()} that at least two judges of a panel judged."
    if scored:
        note += " Difference: highest less lowest score."
    yield Section("Panels", [table], note)


def finding_sections(figures: Sequence[FindingFigures], items: str) -> Iterator[Section]:
    """The section of findings; none without findings.

    Args:
        figures: The figures.
        items: What is judged, in the plural.
    """
    if not figures:
        return
    graded = [name for name in _SEVERITIES if any(one.count_by_severity.get(name) for one in figures)]
    heads = ("findings", f"of {items}", f"{items} with one", *graded)
    table = Table("Findings by kind", columns("kind", "model", figures=heads))
    for one in figures:
        kind = finding_name(one.kind).lower().replace("_", " ")
        link = samples_link(**({} if one.all_models else {"model": one.model}))
        table.add_row(
            name_cell(kind, absent="other"),
            "all models" if one.all_models else name_cell(one.model, link),
            count(one.finding_count),
            figure(one.finding_count / one.output_count),
            share_cell(one.affected_count / one.output_count, one.output_count, one.output_count),
            *(count(one.count_by_severity.get(name, 0)) for name in graded),
        )
    yield Section("Findings", [table], f"What judges found; the second figure is the mean over all {items}.")


def commonest_fault(figures: Iterable[VerdictFigures], model: str) -> str:
    """The criterion that a model fails most often, to follow its name. Empty: it fails none."""
    own = [one for one in figures if one.model == model and not one.all_models and not one.tags]
    faults = [one for one in own if one.criterion and one.fail_count]
    if not faults:
        return ""
    most = max(faults, key=lambda one: one.fail_count)
    total = sum(one.fail_count for one in faults)
    return f"fails {most.criterion} most often ({most.fail_count:,} of its {total:,} failures)"


def criteria_table(rows: Sequence[VerdictFigures]) -> Table:
    """The verdicts on all models by criterion."""
    return _verdicts("Verdicts by criterion", ["criterion"], rows, lambda one, link: [_criterion(one, link)])


def _criterion(one: VerdictFigures, link: str) -> Cell:
    return Cell(one.criterion or ALL, link=link)


def _verdicts(
    caption: str,
    names: Sequence[str],
    rows: Sequence[VerdictFigures],
    cells: Callable[[VerdictFigures, str], Sequence[Cell]],
) -> Table:
    figures = (
        "PASS",
        "FAIL",
        "ABSTAIN",
        Column("PASS of judged", interval=SHARES),
        Column("if all abstentions were FAIL, PASS", detail=True),
    )
    table = Table(caption, columns(*names, figures=figures))
    for one in rows:
        criterion = {"measure": one.criterion} if one.criterion else {}
        abstained = one.verdict_count - one.pass_count - one.fail_count
        numbers = (("pass", one.pass_count), ("fail", one.fail_count), ("abstain", abstained))
        table.add_row(
            *cells(one, samples_link(one.tags, **criterion)),
            *(
                count(number, samples_link(one.tags, **criterion, outcome=outcome))
                for outcome, number in numbers
            ),
            estimate_cell(one.pass_rate),
            _bounds(one),
        )
    return table


def _bounds(one: VerdictFigures) -> str:
    if not one.HasField("pass_rate_lowest"):
        return ABSENT
    return f"{percent_of(one.pass_rate_lowest)}, {percent_of(one.pass_rate_highest)}"


def by_model_table(whole: Sequence[VerdictFigures], models: Sequence[str]) -> Table:
    """The share of PASS by criterion and model."""
    cells = {(one.criterion, one.model): one for one in whole if not one.all_models}
    criteria = list(dict.fromkeys(one.criterion for one in whole if one.criterion))

    def cell(criterion: str, model: str) -> Cell | None:
        one = cells.get((criterion, model))
        if one is None:
            return None
        filters = {"measure": criterion} if criterion else {}
        return estimate_cell(one.pass_rate, samples_link(model=model, **filters), heat=True)

    rows = [([Cell(criterion or ALL)], criterion) for criterion in [*criteria, ""]]
    return matrix("PASS of judged by criterion and model", ["criterion"], rows, models, cell)


def group_sections(options: SummaryOptions, figures: Sequence[VerdictFigures]) -> Iterator[Section]:
    """The verdicts by each grouping: of all, by model if there are several, and by criterion."""
    models = list(dict.fromkeys(one.model for one in figures if not one.all_models))
    for names, rows in by_grouping(options, figures):
        yield _group(names, rows, models)


def _group(names: Sequence[str], rows: Sequence[VerdictFigures], models: Sequence[str]) -> Section:
    whole = [one for one in rows if one.all_models and not one.criterion]
    by_model = {
        (group_key(one.tags, names), one.model): one
        for one in rows
        if not one.all_models and not one.criterion
    }
    pooled = {
        (group_key(one.tags, names), one.criterion): one for one in rows if one.all_models and one.criterion
    }
    keyed = group_rows(names, rows)

    def of_model(key: str, model: str) -> Cell | None:
        one = by_model.get((key, model))
        return one and estimate_cell(one.pass_rate, samples_link(one.tags, model=model), heat=True)

    def of_criterion(key: str, criterion: str) -> Cell | None:
        one = pooled.get((key, criterion))
        return one and estimate_cell(one.pass_rate, samples_link(one.tags, measure=criterion), heat=True)

    title = ", ".join(names)
    tables = [_verdicts(f"Verdicts by {title}", names, whole, lambda one, _: group_cells(names, one.tags))]
    found = {model for _, model in by_model}
    if len(found) > 1:
        columns_shown = [model for model in models if model in found]
        tables.append(matrix(f"PASS of judged by {title} and model", names, keyed, columns_shown, of_model))
    criteria = list(dict.fromkeys(criterion for _, criterion in pooled))
    tables.append(matrix(f"PASS of judged by {title} and criterion", names, keyed, criteria, of_criterion))
    note = "The share of PASS among PASS and FAIL, of all criteria by model and of all models by criterion."
    return Section(f"{title.capitalize()} by model and by criterion", tables, note)
