"""``dramaturg labels align bias``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dramaturg.api.alignment.v1 import bias_pb2
from dramaturg.cli.align.options import Asked, File, GroupBy
from dramaturg.cli.align.report import WHOLE, interval_methods, shown
from dramaturg.cli.align.table import Cells, Rows
from dramaturg.cli.option_groups import takes_groups
from dramaturg.summaries.estimates import figures, rests_on
from dramaturg.tables.cells import p_sentence
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
    groups = [_group(one) for one in response.groups]
    asked.show(
        {"judge_family": judge_family, "groups": groups},
        _tables(response),
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


def _group(group: bias_pb2.PairBiasGroup) -> Mapping[str, Any]:
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


def _tables(response: bias_pb2.MeasurePairBiasResponse) -> Iterator[Table | str]:
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
