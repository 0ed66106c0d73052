"""Figures of comparisons of texts (DRPE, Table 1): agreement with people, effects of order and length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dramaturg.api.alignment.v1.correlation_pb2 import MeasureCorrelation
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.evaluation.v1.summary_pb2 import (
    PairMethodFigures,
    PairsSummary,
    PairStrengths,
    RoleFigures,
    Summary,
)
from dramaturg.api.judging.v1.pair_judge_service_pb2 import RoleOrigin
from dramaturg.kinds.pairs.text_metrics import variant
from dramaturg.results.groups import by_grouping
from dramaturg.results.names import value_name
from dramaturg.tables.common import ranking_lead
from dramaturg.tables.model import (
    ABSENT,
    SHARE,
    SHARES,
    Cell,
    Column,
    Point,
    PointMap,
    Section,
    Table,
    columns,
    count,
    ends_of,
    estimate_cell,
    figure,
    group_key,
    group_rows,
    heat_of,
    matrix,
    optional,
    p_value,
    percent,
    percent_of,
    samples_link,
    share_cell,
    value_of,
)
from dramaturg.tables.verdicts import method_repeats

_CORRELATION = (-1.0, 1.0)
_OPEN_ROWS = 20
"""Longer tables of roles are folded."""

show_mean = percent_of


def lead(summary: Summary) -> str:
    """The sentence that opens the report."""
    ranked = ranking_lead(
        summary, lambda one: f"wins {percent(one.mean)} of {one.judged_count:,} comparisons", percent_of
    )
    for one in summary.pairs.methods:
        rate = value_of(one.accuracy.accuracy)
        if not one.tags and not one.baseline and rate is not None:
            group = one.accuracy
            text = (
                f"The method {one.method} agrees with people on {percent(rate)} of "
                f"{group.answered_count:,} labelled pairs"
            )
            if group.accuracy.HasField("lower"):
                text += f" [{figure(100 * group.accuracy.lower, 0)}, {figure(100 * group.accuracy.upper, 0)}]"
            return f"{text}. {ranked}"
    return ranked


def sections(summary: Summary) -> Iterator[Section]:
    """Agreement with people, Williams' test, preferences with biases, groups, and failures of roles."""
    found = summary.pairs
    whole = [one for one in found.methods if not one.tags]
    if found.labelled_pair_count:
        note = (
            f"Over {found.labelled_pair_count:,} of {found.pair_count:,} pairs that have a human preference."
        )
        tables = [_agreement(whole), _correlations(found, whole)]
        lines = []
        if found.correlations.differences:
            tables.append(_williams(found))
        elif found.best_baseline:
            lines.append(f"The best baseline by Pearson's correlation is {found.best_baseline}.")
        yield Section("Agreement with people", tables, note, lines)
    yield Section(
        "Preferences, order and length",
        [_preferences(whole)],
        "Orders differ: votes with another preference in the other order. First presented: votes for the "
        "text shown first; 50 % without bias. Longer: preferences for the longer text.",
        list(_role_notes(found, whole)),
    )
    if metrics := [one.method for one in whole if variant(one.method)]:
        yield Section("Text metrics", [_variants(metrics)], "Of each text against the source.")
    if found.roles:
        yield _role_votes(found)
    if any(one.HasField("point") for one in found.roles):
        yield _role_map(found)
    if found.strengths:
        yield Section(
            "Strength of systems",
            [_ratings(found.strengths), _win_rates(found.strengths)],
            "Ratings by Bradley and Terry on the Elo scale: 400 points are odds of 10 to 1, the mean is 0. "
            "A tie is half a win; abstentions are left out.",
        )
    for names, rows in by_grouping(summary.options, found.methods):
        yield _group(names, rows)
    yield from method_repeats(whole)


def _variants(metrics: Sequence[str]) -> Table:
    return Table(
        "Text metrics", columns("metric", "variant"), ([one, variant(one)] for one in metrics), heads=1
    )


def _ratings(strengths: Sequence[PairStrengths]) -> Table:
    """The ratings of the systems by each method, drawn on one scale."""
    ratings = [one.elo for strength in strengths for one in strength.preferences.ratings]
    ends = [end for one in ratings if one.HasField("value") for end in (one.value, *_bounds(one))]
    scale = (min(ends, default=0.0) - 1, max(ends, default=0.0) + 1)
    named, names = _methods(strengths)
    heads = (Column("rating", interval=ends_of(*scale, _points)), "pairs")
    table = Table("Ratings of systems", columns(*names, "system", figures=heads))
    for strength in strengths:
        for one in strength.preferences.ratings:
            table.add_row(
                *named(strength),
                one.system,
                estimate_cell(one.elo, scale=scale, show=_points),
                count(one.elo.count),
            )
    return table


def _win_rates(strengths: Sequence[PairStrengths]) -> Table:
    """The win rates of every two systems. Both are heads, so that a plot names them both."""
    named, names = _methods(strengths)
    heads = (Column("win rate", interval=SHARES), "ties")
    table = Table("Win rates of systems", columns(*names, "system", "against", figures=heads))
    for strength in strengths:
        for one in strength.preferences.win_rates:
            table.add_row(
                *named(strength),
                one.system,
                one.opponent,
                estimate_cell(one.win_rate, heat=True),
                count(one.draw_count),
            )
    return table


def _bounds(found: Estimate) -> Sequence[float]:
    return (found.lower, found.upper) if found.HasField("lower") else ()


def _methods(
    strengths: Sequence[PairStrengths],
) -> tuple[Callable[[PairStrengths], Sequence[str]], Sequence[str]]:
    """The cells and the head of the method, if there are several."""
    if len(strengths) > 1:
        return (lambda one: [one.method]), ["method"]
    return (lambda _: []), []


def _role_votes(found: PairsSummary) -> Section:
    """What each role votes for, and how often people agree with it."""
    swept = len({one.method for one in found.roles}) > 1
    heads = ("votes", "first", "tie", "second", "abstained", "agrees with people", "orders differ")
    names = ("role", *(("method",) if swept else ()))
    table = Table(
        "Votes by role",
        columns(*names, "origin", figures=heads),
        heads=len(names),
        folded=_folded("roles", len(found.roles)),
    )
    for one in found.roles:
        agreed = one.agreed_count / one.labelled_count if one.labelled_count else None
        table.add_row(
            Cell(one.role.type, link=samples_link(q=one.role.type)),
            *([one.method] if swept else []),
            _origin(one),
            count(one.first_count + one.tie_count + one.second_count),
            count(one.first_count),
            count(one.tie_count),
            count(one.second_count),
            count(one.abstention_count),
            Cell(
                percent_of(agreed),
                agreed,
                note=f"{one.agreed_count:,} of {one.labelled_count:,} votes" if one.labelled_count else "",
                heat=heat_of(agreed, SHARE),
            ),
            share_cell(optional(one, "inconsistent_share")),
        )
    note = "Agrees with people: votes that equal the human preference, of the votes on labelled pairs."
    if found.role_count > len(found.roles):
        note += f" The {len(found.roles):,} roles with most votes, of {found.role_count:,}."
    return Section("Votes by role", [table], note, detail=True)


def _role_map(found: PairsSummary) -> Section:
    """The roles on a plane, each once for all methods."""
    roles: dict[tuple[str, str], list[RoleFigures]] = {}
    for one in found.roles:
        if one.HasField("point"):
            roles.setdefault((_origin(one), one.role.type), []).append(one)
    points = []
    table = Table(
        "Roles on the map",
        columns("role", texts=("origin", "description"), figures=("cluster", "x", "y")),
        heads=1,
        folded=_folded("roles on the map", len(roles)),
    )
    for (origin, name), some in roles.items():
        one = some[0]
        votes = sum(each.first_count + each.tie_count + each.second_count for each in some)
        alike = one.cluster if one.HasField("cluster") else None
        points.append(Point(name, one.point.x, one.point.y, origin, votes, alike))
        table.add_row(
            name,
            origin,
            one.role.description,
            ABSENT if alike is None else str(alike + 1),
            *(Cell(figure(value, 3), value) for value in (one.point.x, one.point.y)),
        )
    note = (
        "Near roles are alike: the plane has the first two principal components of the embeddings of their "
        "types and descriptions"
    )
    if found.HasField("role_map_explained_share"):
        note += f", {percent(found.role_map_explained_share)} of their variance"
    note += f" (model {found.role_map_model})." if found.role_map_model else "."
    note += " Larger marks have more votes; dashed lines join roles of one cluster (DBSCAN)."
    title = "Map of the roles"
    return Section(title, [table], note, maps=[PointMap(title, points)], detail=True)


def _folded(name: str, count: int) -> str:
    return f"{count:,} {name}" if count > _OPEN_ROWS else ""


def _origin(one: RoleFigures) -> str:
    name = value_name(RoleOrigin, one.role.origin).lower().replace("_", ", ")
    return "not stated" if name == "unspecified" else name


def _points(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.0f}"


def _agreement(rows: Sequence[PairMethodFigures]) -> Table:
    heads = (Column("accuracy", interval=SHARES), "answered")
    table = Table("Agreement with people by method", columns("method", "type", figures=heads), heads=1)
    for one in rows:
        table.add_row(
            one.method,
            "baseline" if one.baseline else "judge",
            estimate_cell(one.accuracy.accuracy, heat=True),
            f"{one.accuracy.answered_count:,} of {one.accuracy.item_count:,}",
        )
    return table


def _correlations(found: PairsSummary, rows: Sequence[PairMethodFigures]) -> Table:
    measures = {one.measure: one for one in found.correlations.measures}
    heads = (Column("Pearson", interval="−1 to 1"), "Spearman", "Kendall")
    table = Table("Correlation of scores with people", columns("method", figures=heads))
    for method in dict.fromkeys([*(one.method for one in rows), *measures]):
        one = measures.get(method, MeasureCorrelation())
        cells = (
            estimate_cell(estimate, scale=_CORRELATION, show=figure)
            for estimate in (one.pearson, one.spearman, one.kendall)
        )
        table.add_row(method, *cells)
    return table


def _williams(found: PairsSummary) -> Table:
    caption = (
        f"Williams' test against {found.best_baseline}, the best baseline; above 0: stronger correlation"
    )
    table = Table(caption, columns("method", figures=("t", "p", "n")))
    for one in found.correlations.differences:
        p = optional(one, "williams_p")
        table.add_row(
            one.first_measure,
            estimate_cell(one.williams_t, show=figure),
            Cell(p_value(p), p),
            count(one.williams_t.count),
        )
    return table


def _preferences(rows: Sequence[PairMethodFigures]) -> Table:
    heads = ("first", "second", "tie", "abstained", "orders differ", "first presented", "longer")
    table = Table("Preferences by method", columns("method", figures=heads))
    for one in rows:
        measure = {} if one.baseline else {"measure": f"win/{one.method}"}
        table.add_row(
            Cell(one.method, link=samples_link(**measure) if measure else ""),
            count(one.first_count),
            count(one.second_count),
            count(one.tie_count),
            count(
                sum(one.abstentions_by_reason.values()),
                samples_link(**measure, outcome="abstain") if measure else "",
            ),
            *(
                estimate_cell(getattr(one, share)) if one.HasField(share) else ABSENT
                for share in ("inconsistent_share", "first_presented_share", "longer_share")
            ),
        )
    return table


def _role_notes(found: PairsSummary, rows: Sequence[PairMethodFigures]) -> Iterator[str]:
    for one in rows:
        if one.requested_role_count and one.least_role_count < one.requested_role_count:
            yield (
                f"{one.method}: {one.requested_role_count} subjective roles were requested; "
                f"{one.least_role_count} to {one.most_role_count} roles voted."
            )
    for reason, number in sorted(found.role_failures.items()):
        yield f"{number:,} comparisons: {reason.removesuffix('.')}."


def _group(names: Sequence[str], rows: Sequence[PairMethodFigures]) -> Section:
    cells = {(group_key(one.tags, names), one.method): one for one in rows}
    methods = list(dict.fromkeys(one.method for one in rows))

    def accuracy(key: str, method: str) -> Cell | None:
        one = cells.get((key, method))
        return one and estimate_cell(one.accuracy.accuracy, samples_link(one.tags), heat=True)

    def preferred(key: str, method: str) -> Cell | None:
        one = cells.get((key, method))
        text = one and f"{one.first_count:,} / {one.tie_count:,} / {one.second_count:,}"
        return one and Cell(text or "", link=samples_link(one.tags))

    keyed = group_rows(names, rows)
    title = ", ".join(names)
    tables = [matrix(f"First, tie, second by {title}", names, keyed, methods, preferred)]
    if any(value_of(one.accuracy.accuracy) is not None for one in rows):
        tables.insert(0, matrix(f"Agreement with people by {title}", names, keyed, methods, accuracy))
    return Section(f"{title.capitalize()} by method", tables)
