"""Tables of how far a judge that is asked several times agrees with itself.

A cell has the mean agreement and the number of judgements that it rests on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dramaturg.api.evaluation.v1.summary_pb2 import (
    PairMethodFigures,
    RatingFigures,
    ReplyPairFigures,
    ScoreFigures,
    VerdictFigures,
)
from dramaturg.tables.cells import name_cell, percent_of, samples_link
from dramaturg.tables.model import Cell, Section, Table, columns, matrix

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
