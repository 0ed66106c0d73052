"""Figures of comparisons of texts (DRPE, Table 1): agreement with people, effects of order and length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.alignment.v1.correlation_pb2 import MeasureCorrelation
from dramaturg.api.evaluation.v1.summary_pb2 import (
    PairMethodFigures,
    PairsSummary,
    PairStrengths,
    RoleFigures,
    Summary,
)
from dramaturg.api.judging.v1.pair_judge_service_pb2 import RoleOrigin
from dramaturg.report.charts import Point, point_map
from dramaturg.report.figures.common import percent_of, ranking_lead
from dramaturg.report.tables import (
    ABSENT,
    INTERVAL,
    SHARE,
    Cell,
    Section,
    Table,
    columns,
    count,
    estimate_cell,
    figure,
    group_key,
    group_rows,
    heat_of,
    interval_cell,
    matrix,
    percent,
    samples_link,
    value_of,
)
from dramaturg.results.groups import by_grouping

_CORRELATION = (-1.0, 1.0)
_OPEN_ROWS = 20
"""Longer tables of roles are folded."""

show_mean = percent_of


def lead(summary: Summary) -> str:
    """The sentence that opens the report."""
    ranked = ranking_lead(
        summary, lambda one: f"wins {percent(one.mean)} of {one.judged_count:,} comparisons", percent
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
        if found.correlations.differences:
            tables.append(_williams(found))
        yield Section("Agreement with people", tables, note)
    yield Section(
        "Preferences, order and length",
        [_preferences(whole)],
        "Orders differ: votes with another preference in the other order. First presented: votes for the "
        "text shown first; 50 % without bias. Longer: preferences for the longer text.",
        list(_role_notes(found, whole)),
    )
    if found.roles:
        yield _role_votes(found)
    if any(one.HasField("point") for one in found.roles):
        yield _role_map(found)
    if found.strengths:
        yield Section(
            "Strength of systems",
            [table for one in found.strengths for table in _strengths(one)],
            "Ratings by Bradley and Terry on the Elo scale: 400 points are odds of 10 to 1, the mean is 0. "
            "A tie is half a win; abstentions are left out.",
        )
    for names, rows in by_grouping(summary.options, found.methods):
        yield _group(names, rows)


def _strengths(found: PairStrengths) -> Iterator[Table]:
    """Ratings of the systems, then the win rates of every two of them."""
    ratings = found.preferences.ratings
    ends = [
        end
        for one in ratings
        for end in (one.elo.value, one.elo.lower, one.elo.upper)
        if one.elo.HasField("value")
    ]
    scale = (min(ends, default=0.0) - 1, max(ends, default=0.0) + 1)
    rated = [
        [Cell(one.system), estimate_cell(one.elo, show=_points), interval_cell(one.elo, scale, _points)]
        for one in ratings
    ]
    rating_heads = ("rating", f"{INTERVAL}, {_points(scale[0])} to {_points(scale[1])}")
    yield Table(f"Ratings by {found.method}", columns("system", figures=rating_heads), rated)
    rates = [
        [
            Cell(one.system),
            Cell(one.opponent),
            estimate_cell(one.win_rate, heat=True),
            interval_cell(one.win_rate, SHARE, percent_of),
            count(one.draw_count),
        ]
        for one in found.preferences.win_rates
    ]
    heads = ("win rate", f"{INTERVAL}, 0 to 100 %", "ties")
    # Both systems are heads, so that a plot names them both.
    yield Table(f"Win rates by {found.method}", columns("system", "against", figures=heads), rates, heads=2)


def _role_votes(found: PairsSummary) -> Section:
    """What each role votes for, and how often people agree with it."""
    swept = len({one.method for one in found.roles}) > 1
    rows = []
    for one in found.roles:
        votes = one.first_count + one.tie_count + one.second_count
        agreed = one.agreed_count / one.labelled_count if one.labelled_count else None
        rows.append(
            [
                Cell(one.role.type, samples_link(q=one.role.type)),
                *([Cell(one.method)] if swept else []),
                Cell(_origin(one)),
                count(votes),
                count(one.first_count),
                count(one.tie_count),
                count(one.second_count),
                count(one.abstention_count),
                Cell(
                    percent_of(agreed),
                    heat=heat_of(agreed, SHARE),
                    title=f"{one.agreed_count:,} of {one.labelled_count:,} votes"
                    if one.labelled_count
                    else "",
                    value=agreed,
                ),
                Cell(percent_of(one.inconsistent_share if one.HasField("inconsistent_share") else None)),
            ]
        )
    heads = ("votes", "first", "tie", "second", "abstained", "agrees with people", "orders differ")
    names = ("role", *(("method",) if swept else ()), "origin")
    table = Table("Votes by role", columns(*names, figures=heads), rows, folded=_folded("roles", len(rows)))
    note = "Agrees with people: votes that equal the human preference, of the votes on labelled pairs."
    if found.role_count > len(found.roles):
        note += f" The {len(found.roles):,} roles with most votes, of {found.role_count:,}."
    return Section("Votes by role", [table], note)


def _role_map(found: PairsSummary) -> Section:
    """The roles on a plane, each once for all methods."""
    roles: dict[tuple[str, str], list[RoleFigures]] = {}
    for one in found.roles:
        if one.HasField("point"):
            roles.setdefault((_origin(one), one.role.type), []).append(one)
    points, rows = [], []
    for (origin, name), some in roles.items():
        one = some[0]
        votes = sum(each.first_count + each.tie_count + each.second_count for each in some)
        alike = one.cluster if one.HasField("cluster") else None
        points.append(Point(name, one.point.x, one.point.y, origin, votes, alike))
        rows.append(
            [
                Cell(name),
                Cell(origin),
                Cell(one.role.description),
                Cell(ABSENT if alike is None else str(alike + 1)),
                *(Cell(figure(value, 3), value=value) for value in (one.point.x, one.point.y)),
            ]
        )
    note = (
        "Near roles are alike: the plane has the first two principal components of the embeddings of their "
        "types and descriptions"
    )
    if found.HasField("role_map_explained_share"):
        note += f", {percent(found.role_map_explained_share)} of their variance"
    note += f" (model {found.role_map_model})." if found.role_map_model else "."
    note += " Larger marks have more votes; dashed lines join roles of one cluster (DBSCAN)."
    table = Table(
        "Roles on the map",
        columns("role", "origin", "description", figures=("cluster", "x", "y")),
        rows,
        folded=_folded("roles on the map", len(rows)),
    )
    return Section("Map of the roles", [table], note, maps=[point_map("Map of the roles", points)])


def _folded(name: str, count: int) -> str:
    return f"{count:,} {name}" if count > _OPEN_ROWS else ""


def _origin(one: RoleFigures) -> str:
    name = RoleOrigin.Name(one.role.origin).removeprefix("ROLE_ORIGIN_").lower().replace("_", ", ")
    return "not stated" if name == "unspecified" else name


def _points(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.0f}"


def _agreement(rows: Sequence[PairMethodFigures]) -> Table:
    made = [
        [
            Cell(one.method),
            Cell("baseline" if one.baseline else "judge"),
            estimate_cell(one.accuracy.accuracy, heat=True),
            interval_cell(one.accuracy.accuracy, SHARE, percent_of),
            Cell(f"{one.accuracy.answered_count:,} of {one.accuracy.item_count:,}"),
        ]
        for one in rows
    ]
    heads = ("accuracy", "95 % interval, 0 to 100 %", "answered")
    return Table("Agreement with people by method", columns("method", "type", figures=heads), made)


def _correlations(found: PairsSummary, rows: Sequence[PairMethodFigures]) -> Table:
    measures = {one.measure: one for one in found.correlations.measures}
    made = []
    for method in dict.fromkeys([*(one.method for one in rows), *measures]):
        one = measures.get(method, MeasureCorrelation())
        estimates = (one.pearson, one.spearman, one.kendall)
        cells = [estimate_cell(estimate, show=figure) for estimate in estimates]
        made.append([Cell(method), *cells, interval_cell(one.pearson, _CORRELATION, figure)])
    heads = ("Pearson", "Spearman", "Kendall", "Pearson, −1 to 1")
    return Table("Correlation of scores with people", columns("method", figures=heads), made)


def _williams(found: PairsSummary) -> Table:
    rows = []
    for one in found.correlations.differences:
        p = f"{one.williams_p:.4f}" if one.HasField("williams_p") else ABSENT
        rows.append([Cell(one.first_measure), estimate_cell(one.williams_t, show=figure), Cell(p)])
    caption = (
        f"Williams' test against {found.best_baseline}, the best baseline; above 0: stronger correlation"
    )
    return Table(caption, columns("method", figures=("t", "p")), rows)


def _preferences(rows: Sequence[PairMethodFigures]) -> Table:
    made = []
    for one in rows:
        link = samples_link(measure=f"win/{one.method}")
        abstained = sum(one.abstentions_by_reason.values())
        made.append(
            [
                Cell(one.method, "" if one.baseline else link),
                count(one.first_count),
                count(one.second_count),
                count(one.tie_count),
                count(
                    abstained,
                    "" if one.baseline else samples_link(measure=f"win/{one.method}", outcome="abstain"),
                ),
                Cell(percent_of(one.inconsistent_share if one.HasField("inconsistent_share") else None)),
                Cell(
                    percent_of(one.first_presented_share if one.HasField("first_presented_share") else None)
                ),
                Cell(percent_of(one.longer_share if one.HasField("longer_share") else None)),
            ]
        )
    heads = ("first", "second", "tie", "abstained", "orders differ", "first presented", "longer")
    return Table("Preferences by method", columns("method", figures=heads), made)


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
        return one and Cell(
            f"{one.first_count:,} / {one.tie_count:,} / {one.second_count:,}", samples_link(one.tags)
        )

    keyed = group_rows(names, rows)
    title = ", ".join(names)
    tables = [matrix(f"First, tie, second by {title}", names, keyed, methods, preferred)]
    if any(value_of(one.accuracy.accuracy) is not None for one in rows):
        tables.insert(0, matrix(f"Agreement with people by {title}", names, keyed, methods, accuracy))
    return Section(f"{title.capitalize()} by method", tables)
