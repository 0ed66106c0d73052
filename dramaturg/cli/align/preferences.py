"""``dramaturg labels align preferences``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import typer

from dramaturg.api.alignment.v1 import preference_pb2 as pb
from dramaturg.cli.align.options import File, Resampled
from dramaturg.cli.align.report import interval_methods, shown
from dramaturg.cli.align.table import Cells, Rows
from dramaturg.cli.option_groups import takes_groups
from dramaturg.summaries.estimates import figures
from dramaturg.tables.cells import percent
from dramaturg.tables.model import Table, columns

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
        found, _tables(response), left_out, interval_methods(response), then=("labels", "align", "bias", file)
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


def _tables(response: pb.MeasurePreferencesResponse) -> Iterable[Table | str]:
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
