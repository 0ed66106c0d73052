"""``dramaturg labels align ranks``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from dramaturg.api.alignment.v1 import ranking_pb2
from dramaturg.cli.align.options import Cluster, File, Resampled
from dramaturg.cli.align.report import WHOLE, interval_methods, shown
from dramaturg.cli.align.table import Cells, Rows, number
from dramaturg.cli.option_groups import takes_groups
from dramaturg.summaries.estimates import figures, rests_on
from dramaturg.tables.cells import p_value, percent
from dramaturg.tables.model import Table, columns

_ITEM, _SYSTEM = "item", "system"


@takes_groups
def ranks(
    file: File,
    asked: Resampled,
    group_by: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Also rank by this column, e.g. topic; repeatable."),
    ] = None,
    quantiles: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=N", help="Also rank by N quantiles of a numeric column, e.g. length=4."),
    ] = None,
    macro: Annotated[
        str,
        typer.Option(metavar="COLUMN", help="Column whose values have equal weight, e.g. criterion."),
    ] = "",
    cluster: Cluster = "",
) -> None:
    """Ranks systems by several methods, with agreement and stability of the rankings.

    Rows have the columns "item" and "system"; every other column of numbers is a method, more being better,
    but for those that group. The items of one name are drawn together for all systems. Truth values are 1 and
    0, and an empty cell is an abstention. Ranks, p-values and intervals of differences hold for all pairs of
    systems together.

    Example: dramaturg labels align ranks scores.csv --group-by topic --quantiles length=4 --macro criterion
    """
    rows = Rows.read(file)
    rows.require(_ITEM, _SYSTEM)
    rows.require(*(group_by or []), option="--group-by")
    rows.require(macro, option="--macro")
    rows.require(cluster, option="--cluster")
    parts = _parts(rows, quantiles or [])
    grouped = list(dict.fromkeys([*(group_by or []), *parts]))
    request = ranking_pb2.RankSystemsRequest(
        group_tags=grouped,
        macro_tag=macro,
        cluster_tag=cluster,
        **asked.request,
    )
    tags = list(dict.fromkeys([*grouped, *filter(None, (macro, cluster))]))
    columns = list(dict.fromkeys(name for _, row in rows.rows for name in row))
    methods, left_out = _methods(rows, [name for name in columns if name not in {_ITEM, _SYSTEM, *tags}])
    for line, row in rows.rows:
        cells = Cells(rows, line, row)
        request.items.add(
            id=cells.required(_ITEM),
            system=cells.required(_SYSTEM),
            scores={name: score for name in methods if (score := _score(row.get(name))) is not None},
            tags={name: value for name in tags if (value := parts.get(name, {}).get(line, cells.text(name)))},
        )
    response = asked.call(lambda stub: stub.RankSystems(request))
    groups = [_group(one) for one in response.groups]
    asked.show(
        {"groups": groups},
        _tables(response, resampled=asked.resamples > 0),
        left_out,
        interval_methods(response),
        then=("plan", "BASELINE", "CANDIDATE"),
    )


def _methods(rows: Rows, columns: Sequence[str]) -> tuple[list[str], list[str]]:
    """The columns of numbers, and in words those that are not."""
    methods: list[str] = []
    left_out: list[str] = []
    for name in columns:
        values = [(line, row.get(name)) for line, row in rows.rows if row.get(name) not in (None, "")]
        bad = [line for line, value in values if _score(value) is None]
        if not values or len(bad) == len(values):
            left_out.append(f"column {name!r}, which has no numbers")
        elif bad:
            rows.refuse(bad[0], f"has something other than a finite number in column {name!r}")
        else:
            methods.append(name)
    if not methods:
        rows.refuse(0, "has no column of numbers beside item and system")
    return methods, left_out


def _parts(rows: Rows, quantiles: Sequence[str]) -> Mapping[str, Mapping[int, str]]:
    """For each column that is cut: the part of each line, named by its lowest and highest number."""
    parts: dict[str, dict[int, str]] = {}
    for wanted in quantiles:
        name, _, count = wanted.rpartition("=")
        if not name or not count.isdigit() or int(count) < 2:
            raise typer.BadParameter(
                f"{wanted!r} is not COLUMN=N with N of 2 or more", param_hint="--quantiles"
            )
        rows.require(name, option="--quantiles")
        numbers = {line: Cells(rows, line, row).number(name) for line, row in rows.rows}
        known = sorted(value for value in numbers.values() if value is not None)
        if not known:
            rows.refuse(0, f"has no numbers in column {name!r}")
        cuts = [known[(place * len(known) - 1) // int(count)] for place in range(1, int(count))]
        inside: dict[int, list[float]] = {}
        for value in known:
            inside.setdefault(sum(value > cut for cut in cuts), []).append(value)
        width = max(len(f"{value:g}") for value in known)
        names = {code: f"{values[0]:>{width}g} to {values[-1]:>{width}g}" for code, values in inside.items()}
        parts[name] = {
            line: names[sum(value > cut for cut in cuts)]
            for line, value in numbers.items()
            if value is not None
        }
    return parts


def _score(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
        return float(value.strip().lower() == "true")
    return number(value)


def _group(group: ranking_pb2.RankGroup) -> Mapping[str, Any]:
    return {
        "tag": group.tag,
        "value": group.value,
        "methods": {
            one.method: {
                "systems": [_system(system) for system in one.systems],
                **figures(one, ("stability",)),
            }
            for one in group.methods
        },
        "correlations": [
            {
                "first": one.first_method,
                "second": one.second_method,
                "n": one.kendall.count,
                **figures(one, ("spearman", "kendall")),
            }
            for one in group.correlations
        ],
    }


def _system(system: ranking_pb2.RankedSystem) -> Mapping[str, Any]:
    ranked = system.HasField("rank_lower")
    return {
        "system": system.system,
        "rank": system.rank if system.HasField("rank") else None,
        "rank_interval": [system.rank_lower, system.rank_upper] if ranked else None,
        "first_share": system.first_share if system.HasField("first_share") else None,
        **rests_on(system.mean),
        **figures(system, ("mean", *(("difference",) if system.HasField("difference") else ()))),
        "standard_error": system.mean.standard_error if system.mean.HasField("standard_error") else None,
        "p": system.p_value if system.HasField("p_value") else None,
        "adjusted_p": system.adjusted_p_value if system.HasField("adjusted_p_value") else None,
    }


def _tables(response: ranking_pb2.RankSystemsResponse, *, resampled: bool) -> Sequence[Table]:
    table = Table(
        "",
        columns(
            "group",
            "method",
            "rank",
            "system",
            figures=("mean", "ranks", "first in", "to the first", "p", "n"),
        ),
    )
    alike = Table("", columns("group", "methods", figures=("Spearman", "Kendall", "systems")))
    stable = Table("", columns("group", "method", figures=("mean tau with resampled rankings",)))
    for group in response.groups:
        name = f"{group.tag} {group.value}" if group.tag else WHOLE
        for method in group.methods:
            for one in method.systems:
                ranked = one.HasField("rank_lower")
                table.add_row(
                    name,
                    method.method,
                    f"{one.rank:g}" if one.HasField("rank") else "",
                    one.system,
                    shown(one.mean),
                    f"{one.rank_lower:g} to {one.rank_upper:g}" if ranked else "",
                    percent(one.first_share, 0) if one.HasField("first_share") else "",
                    shown(one.difference) if one.HasField("difference") else "",
                    p_value(one.adjusted_p_value) if one.HasField("adjusted_p_value") else "",
                    f"{one.mean.count}/{one.mean.total}",
                )
            if resampled:
                stable.add_row(name, method.method, shown(method.stability))
        for pair in group.correlations:
            methods = f"{pair.first_method} - {pair.second_method}"
            alike.add_row(name, methods, shown(pair.spearman), shown(pair.kendall), str(pair.kendall.count))
    return table, alike, stable
