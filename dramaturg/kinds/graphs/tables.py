"""Figures of script graphs (proScript, Tables 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from dramaturg.api.evaluation.v1.run_results_pb2 import LeaderboardEntry
from dramaturg.api.evaluation.v1.summary_pb2 import DistanceFigures, GraphFigures, Summary
from dramaturg.kinds.graphs import EDIT_NAMES
from dramaturg.tables.common import ranking_lead
from dramaturg.tables.model import (
    ABSENT,
    SHARE,
    Cell,
    Column,
    Scale,
    Section,
    Table,
    columns,
    count,
    estimate_cell,
    figure,
    group_name,
    heat_of,
    optional,
    samples_link,
)

_DISTANCE = "edit_distance"


def show_mean(value: float | None) -> str:
    """The format of means."""
    return figure(value, 3)


def scale(summary: Summary) -> Scale:
    """The scale of the leaderboard: of distances, from 0 to the largest end of an interval."""
    if summary.leaderboard_measure != _DISTANCE:
        return SHARE
    return 0.0, max([1.0, *(max(one.mean, one.upper) for one in summary.leaderboard)])


def lead(summary: Summary) -> str:
    """The sentence that opens the report."""

    def phrase(one: LeaderboardEntry) -> str:
        name = "edit distance" if summary.leaderboard_measure == _DISTANCE else "F1 of edges"
        return f"has a mean {name} of {figure(one.mean)} over {one.judged_count:,} graphs"

    return ranking_lead(summary, phrase, figure)


def sections(summary: Summary) -> Iterator[Section]:
    """Outcomes, scores of edges, and distances of each model and task."""
    figures = summary.graphs.figures
    if not figures:
        return
    whole = [one for one in figures if not one.tags]
    yield Section(
        "Graphs",
        [_outcomes(whole)],
        "Removed edges broke cycles. Left out: answers of which a part could not be read.",
    )
    if flagged := list(_flagged(whole)):
        yield Section("Written events", lines=flagged)
    if any(one.HasField("edges") for one in whole):
        yield Section(
            "Scores of edges", list(_edges(figures)), "Macro: the mean over graphs. Micro: all edges as one."
        )
    modes = list(dict.fromkeys(distance.mode for one in figures for distance in one.distances))
    if modes:
        yield Section(
            "Edit distances",
            [_distances(figures, mode) for mode in modes],
            "The mean of the best distances found, and the mean number of edits of each type. Two figures "
            "are the bounds of distances that are not all proven.",
        )


def _flagged(whole: Sequence[GraphFigures]) -> Iterator[str]:
    for one in whole:
        model = one.model or "the default model"
        if one.event_count_mismatch_count:
            yield (
                f"{model}, {one.task}: {one.event_count_mismatch_count:,} of {one.graph_count:,} graphs have "
                "another number of events than requested."
            )
        if one.unclear_event_count:
            yield (
                f"{model}, {one.task}: {one.unclear_event_count:,} events are not matched clearly by the "
                "judge; they count as unmatched."
            )


def _name(one: GraphFigures) -> Sequence[Cell]:
    link = samples_link(one.tags, model=one.model)
    return [Cell(one.model or "(default)", link=link), Cell(one.task), Cell(group_name(one.tags))]


def _outcomes(rows: Sequence[GraphFigures]) -> Table:
    heads = ("graphs", "abstained", "cyclic", "removed edges", "left out", "unmeasured")
    table = Table("Outcomes", columns("model", "task", figures=heads))
    for one in rows:
        abstained = sum(one.abstentions_by_reason.values())
        numbers = (one.cyclic_count, one.removed_edge_count, one.dropped_count, one.unmeasured_count)
        table.add_row(
            *_name(one)[:2],
            count(one.graph_count),
            count(abstained, samples_link(model=one.model, outcome="abstain")),
            *map(count, numbers),
        )
    return table


def _edges(figures: Sequence[GraphFigures]) -> Iterator[Table]:
    abstained = any(one.HasField("macro_f1_abstentions_zero") for one in figures)
    names = ("model", "task", "group", "average")
    heads: Sequence[str | Column] = (
        "scored",
        "exact",
        "precision",
        "recall",
        "F1",
        "IoU",
        *(["F1, abstentions 0"] if abstained else []),
        *(Column(name, detail=True) for name in ("extra edges", "missing edges")),
    )
    ordered = sorted(figures, key=lambda one: sorted(one.tags))
    for tags, listed in groupby(ordered, key=lambda one: tuple(sorted(one.tags))):
        rows = [
            row for one in listed if one.HasField("edges") for row in _edge_rows(one, abstained=abstained)
        ]
        caption = f"Scores of edges by {', '.join(tags)}" if tags else "Scores of edges"
        if rows:
            yield Table(caption, columns(*names, figures=heads), rows)


def _edge_rows(one: GraphFigures, *, abstained: bool) -> Iterator[Sequence[Cell | str]]:
    found = one.edges
    zero = optional(one, "macro_f1_abstentions_zero")
    exact = count(
        found.exact_match_count,
        samples_link(one.tags, model=one.model, measure="exact_match", outcome="pass"),
    )
    means, whole = found.macro, found.micro
    start = (count(found.pair_count), exact)
    yield [
        *_name(one),
        "macro",
        *start,
        *(
            estimate_cell(rate, heat=True, show=show_mean)
            for rate in (means.precision, means.recall, means.f1, means.iou)
        ),
        *([Cell(figure(zero, 3), zero)] if abstained else []),
        *(estimate_cell(edges, show=figure) for edges in (means.extra_edges, means.missing_edges)),
    ]
    if not one.tags:
        yield [
            *_name(one),
            "micro",
            *start,
            *(
                Cell(show_mean(rate), rate, heat=heat_of(rate, SHARE))
                for rate in (whole.precision, whole.recall, whole.f1, whole.iou)
            ),
            *([ABSENT] if abstained else []),
            *(Cell(f"{edges:,.0f}", edges) for edges in (whole.extra_edges, whole.missing_edges)),
        ]


def _distances(figures: Sequence[GraphFigures], mode: str) -> Table:
    heads = ("proven", "distance", *EDIT_NAMES.values())
    table = Table(f"Edit distance, {mode}", columns("model", "task", "group", "matching", figures=heads))
    for one in figures:
        for found in one.distances:
            if found.mode == mode:
                table.add_row(
                    *_name(one),
                    found.matching,
                    f"{found.proven_count:,} of {found.measured_count:,}",
                    _mean(found),
                    *(estimate_cell(found.mean_edits[edit], show=figure) for edit in EDIT_NAMES),
                )
    return table


def _mean(found: DistanceFigures) -> Cell:
    proven = found.proven_count == found.measured_count
    least = "" if proven else f"{figure(found.mean_lower_bound)} to "
    cell = estimate_cell(found.mean, show=figure)
    return replace(cell, text=least + cell.text, judged=found.proven_count, total=found.measured_count)
