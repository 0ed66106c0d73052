"""``dramaturg labels align bias``, ``preferences`` and ``ranks``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dramaturg.api.alignment.v1 import bias_pb2, ranking_pb2
from dramaturg.api.alignment.v1 import preference_pb2 as pb
from dramaturg.cli.align.options import (
    WHOLE,
    Asked,
    Cluster,
    File,
    GroupBy,
    Resampled,
    interval_methods,
    shown,
)
from dramaturg.cli.align.table import Cells, Rows, number
from dramaturg.cli.options import takes_groups
from dramaturg.summaries.estimates import figures, rests_on
from dramaturg.tables.cells import p_sentence, p_value, percent
from dramaturg.tables.model import Table, columns

JudgeFamily = Annotated[str, typer.Option(metavar="FAMILY", help="Model family of the judge, e.g. llama.")]

_SIDES = {
    "first": bias_pb2.PREFERENCE_FIRST,
    "1": bias_pb2.PREFERENCE_FIRST,
    "second": bias_pb2.PREFERENCE_SECOND,
    "2": bias_pb2.PREFERENCE_SECOND,
    "tie": bias_pb2.PREFERENCE_TIE,
    "0": bias_pb2.PREFERENCE_TIE,
    "": bias_pb2.PREFERENCE_UNSPECIFIED,
}
_KINDS = {"length": "the longer", "own_family": "the judge's own family", "position": "the first shown"}
_SHARES = ("judge_share", "human_share", "excess")


@takes_groups
def bias(
    file: File,
    asked: Asked,
    judge_family: JudgeFamily = "",
    group_by: GroupBy = "",
) -> None:
    """Measures biases of a pair judge: position, length, own model family.

    Rows are judgements of pairs in the order in which they were shown: "first" and "second" (who wrote
    which), "judged" (first, second or tie; empty: abstained), and where known "id" (the same for both orders
    of a pair), "human" (in the same terms), "first_length", "second_length", "first_family", "second_family".

    Example: dramaturg labels align bias judged.jsonl --judge-family llama
    """
    request = read_pairs(file, judge_family, asked.level, group_by)
    response = asked.call(lambda stub: stub.MeasurePairBias(request))
    groups = [_bias_group(one) for one in response.groups]
    asked.show(
        {"judge_family": judge_family, "groups": groups},
        _bias_tables(response),
        (),
        interval_methods(response),
        then=("labels", "align", "preferences", file),
    )


def read_pairs(
    file: Path, judge_family: str, level: float, group_by: str = ""
) -> bias_pb2.MeasurePairBiasRequest:
    """The request about the judged pairs of a file.

    Args:
        file: The rows, as ``bias`` describes them.
        judge_family: The model family of the judge. Empty: not known.
        level: The level of the intervals.
        group_by: The column of groups. Empty: none.

    Raises:
        typer.BadParameter: The file cannot be used.
    """
    rows = Rows.read(file)
    rows.require("first", "second", "judged")
    rows.require(group_by, option="--group-by")
    request = bias_pb2.MeasurePairBiasRequest(
        judge_family=judge_family, group_tag=group_by, confidence_level=level
    )
    for line, row in rows.rows:
        _add(request, Cells(rows, line, row), rows)
    return request


def _add(request: bias_pb2.MeasurePairBiasRequest, cells: Cells, rows: Rows) -> None:
    judged, human = (_side(cells, rows, column) for column in ("judged", "human"))
    group = cells.text(request.group_tag) if request.group_tag else ""
    request.pairs.add(
        id=cells.text("id"),
        first=_text(cells, "first"),
        second=_text(cells, "second"),
        judged=judged,
        human=human,
        tags={request.group_tag: group} if group else {},
    )


def _text(cells: Cells, side: str) -> bias_pb2.JudgedText:
    return bias_pb2.JudgedText(
        system=cells.required(side),
        family=cells.text(f"{side}_family"),
        length=cells.number(f"{side}_length", lowest=0),
    )


def _side(cells: Cells, rows: Rows, column: str) -> bias_pb2.Preference.ValueType:
    said = cells.text(column).lower()
    if said not in _SIDES:
        problem = f"has {cells.quoted(column)} in column {column!r}, none of first, second and tie"
        rows.refuse(cells.line, problem)
    return _SIDES[said]


def _bias_group(group: bias_pb2.PairBiasGroup) -> Mapping[str, Any]:
    swaps = group.swaps
    return {
        "group": group.group,
        "judgements": group.judgement_count,
        "ties": group.tie_count,
        "abstained": group.abstained_count,
        **rests_on(group.first_share),
        **figures(group, ("first_share",)),
        "first_share_p": group.first_share_p if group.HasField("first_share_p") else None,
        **{
            kind: {
                **rests_on(getattr(group, kind).judge_share),
                **figures(getattr(group, kind), _SHARES),
                "excess_n": getattr(group, kind).excess.count,
                "excess_bounds": _bounds(getattr(group, kind)),
            }
            for kind in _KINDS
        },
        "swaps": {
            "pairs": swaps.pair_count,
            **rests_on(swaps.consistent_share),
            **figures(swaps, ("consistent_share",)),
            "first_both": swaps.first_both_count,
            "second_both": swaps.second_both_count,
            "tie_once": swaps.tie_once_count,
        },
    }


def _bounds(one: bias_pb2.PreferenceExcess) -> Sequence[float] | None:
    known = one.HasField("excess_lower_bound")
    return [one.excess_lower_bound, one.excess_upper_bound] if known else None


def _bias_tables(response: bias_pb2.MeasurePairBiasResponse) -> Iterator[Table | str]:
    table = Table(
        "", columns("group", "choices that name", figures=("by the judge", "by people", "excess", "n"))
    )
    heads = ("same both times", "first both times", "second both times", "tie once", "n")
    swaps = Table("", columns("group", figures=heads))
    for group in response.groups:
        name = group.group or WHOLE
        for kind, label in _KINDS.items():
            one = getattr(group, kind)
            shares = (shown(getattr(one, share)) for share in _SHARES)
            table.add_row(name, label, *shares, f"{one.judge_share.count}/{group.judgement_count}")
        said = group.swaps
        if said.pair_count:
            counts = (said.first_both_count, said.second_both_count, said.tie_once_count)
            rests = f"{said.consistent_share.count}/{said.pair_count}"
            swaps.add_row(name, shown(said.consistent_share), *map(str, counts), rests)
    yield table
    yield swaps if swaps.rows else "no pair was judged in both orders"
    whole = response.groups[0]
    yield f"{whole.judgement_count} judgements: {whole.tie_count} ties, {whole.abstained_count} abstentions"
    if whole.HasField("first_share_p"):
        yield f"choices of the first shown, against a half: {p_sentence(whole.first_share_p)}"


_PREFERENCES = {"first": 1.0, "second": 0.0, "tie": 0.5, "draw": 0.5}
_ADJUSTED_FOR = {
    pb.LENGTH_CONTROL_LENGTH_ALONE: "length alone",
    pb.LENGTH_CONTROL_GIVEN_DIFFICULTY: "length, given difficulty",
    pb.LENGTH_CONTROL_JOINT_DIFFICULTY: "length, joint difficulty",
}


@takes_groups
def preferences(
    file: File,
    asked: Resampled,
    baseline: Annotated[
        str,
        typer.Option(metavar="SYSTEM", help="Origin of ratings; opponent of length-controlled win rates."),
    ] = "",
    references: Annotated[
        list[str] | None,
        typer.Option(
            "--reference",
            metavar="SYSTEM",
            help="Verbose or concise variant of the baseline, for length control; repeatable.",
        ),
    ] = None,
    adjust_position: Annotated[
        bool, typer.Option("--adjust-position", help="Adjust ratings for which text was shown first.")
    ] = False,
) -> None:
    """Measures win rates and ratings of systems from judged pairs.

    Rows have the columns "first" and "second" (who wrote which), "judged" (first, second, tie, or the
    preference for the first from 0 to 1; empty: abstained), and where known "prompt", "first_length",
    "second_length" and "difficulty". A draw is half a win. Ratings are Bradley and Terry's on the Elo scale.

    Example: dramaturg labels align preferences pairs.jsonl --baseline gpt-4
    """
    rows = Rows.read(file)
    rows.require("first", "second", "judged")
    request = pb.MeasurePreferencesRequest(
        baseline=baseline, adjust_position=adjust_position, **{**asked.request, "resample_count": 0}
    )
    request.reference_systems.extend(references or [])
    request.resample_count = min(asked.resamples, 5000)
    for line, row in rows.rows:
        cells = Cells(rows, line, row)
        judged = cells.text("judged").lower()
        request.pairs.add(
            prompt=cells.key("prompt"),
            first=cells.required("first"),
            second=cells.required("second"),
            preference=_PREFERENCES[judged]
            if judged in _PREFERENCES
            else cells.number("judged", lowest=0, highest=1),
            first_length=cells.number("first_length", lowest=0),
            second_length=cells.number("second_length", lowest=0),
            difficulty=cells.number("difficulty"),
        )
    response = asked.call(lambda stub: stub.MeasurePreferences(request))
    abstained = response.abstained_count
    found: dict[str, Any] = {
        "ratings": [
            {"system": one.system, "pairs": one.elo.count, **figures(one, ("elo",))}
            for one in response.ratings
        ],
        "rating_prior": response.rating_prior,
        "win_rates": [_describe(one) for one in response.win_rates],
    }
    if response.HasField("position_effect"):
        found |= figures(response, ("position_effect",))
    left_out = [f"{abstained} pairs without a preference"] if abstained else []
    asked.show(
        found,
        _preference_tables(response),
        left_out,
        interval_methods(response),
        then=("labels", "align", "bias", file),
    )


def _describe(one: pb.WinRate) -> Mapping[str, Any]:
    names = ["win_rate"]
    if one.HasField("length_controlled_win_rate"):
        names.append("length_controlled_win_rate")
    return {
        "system": one.system,
        "opponent": one.opponent,
        "pairs": one.win_rate.count,
        "draws": one.draw_count,
        "longer_share": one.longer_share if one.HasField("longer_share") else None,
        "adjusted_for": _ADJUSTED_FOR.get(one.length_control, ""),
        **figures(one, names),
    }


def _preference_tables(response: pb.MeasurePreferencesResponse) -> Iterable[Table | str]:
    ratings = Table("", columns("system", figures=("Elo", "pairs")))
    for one in response.ratings:
        ratings.add_row(one.system, shown(one.elo), str(one.elo.count))
    names = ("win rate", "at equal lengths", "adjusted for", "longer texts", "draws", "pairs")
    rates = Table("", columns("system", "against", figures=names))
    for rate in response.win_rates:
        controlled = rate.HasField("length_controlled_win_rate")
        rates.add_row(
            rate.system,
            rate.opponent,
            shown(rate.win_rate),
            shown(rate.length_controlled_win_rate) if controlled else "",
            _ADJUSTED_FOR.get(rate.length_control, ""),
            percent(rate.longer_share) if rate.HasField("longer_share") else "",
            str(rate.draw_count),
            str(rate.win_rate.count),
        )
    yield from (ratings, rates)
    if response.rating_prior:
        yield f"ratings have a prior, since a system wins or loses everything: {response.rating_prior}"
    if response.HasField("position_effect"):
        yield f"log odds of the text shown first: {shown(response.position_effect)}"


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
    groups = [_rank_group(one) for one in response.groups]
    asked.show(
        {"groups": groups},
        _rank_tables(response, resampled=asked.resamples > 0),
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


def _rank_group(group: ranking_pb2.RankGroup) -> Mapping[str, Any]:
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


def _rank_tables(response: ranking_pb2.RankSystemsResponse, *, resampled: bool) -> Sequence[Table]:
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
