"""The tables and figures of completed sheets: Tables 2 to 4 and Figures 7 and 8."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dramaturg.api.alignment.v1.accuracy_pb2 import Grouping, MeasureAccuracyRequest
from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.evaluation.v1.graphs_pb2 import GRAPH_TASK_GENERATE, GraphsResult, MeasuredGraph
from dramaturg.api.evaluation.v1.run_pb2 import SAMPLE_STATE_SUCCEEDED, RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.datasets.json_lines import LineError
from dramaturg.graphs.files import read_votes
from dramaturg.kinds.graphs import EDIT_NAMES
from dramaturg.plots.figures import BarChart, counted
from dramaturg.tables.model import ABSENT, Column, Row, Table
from dramaturg_research.reproduction.cells import count, estimate, number, percents, words
from dramaturg_research.reproduction.paper import DataError, Reproduction
from dramaturg_research.reproduction.proscript.printed import FIGURE_7, TABLE_2, TABLE_4, TABLE_4_MODELS
from dramaturg_research.reproduction.proscript.sheets import (
    HUMAN,
    REVISIONS,
    REVISIONS_KEY,
    TYPES,
    VOTES,
    VOTES_KEY,
    Revision,
    completed_sheets,
    read_key,
    read_revisions,
)
from dramaturg_research.reproduction.proscript.tables import edit_cells

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub
    from dramaturg.api.graph.v1.graph_service_pb2_grpc import GraphServiceAsyncStub
    from dramaturg_research.reproduction.session import Session

_INVERSE = {pb.PREFERENCE_BETTER: pb.PREFERENCE_WORSE, pb.PREFERENCE_WORSE: pb.PREFERENCE_BETTER}
_PREFERENCES = ("better", "equal", "worse")
_SHARE_DIGITS = 1
_DIGITS = 2
_BINS = {"0": 0, "1 to 3": 3, "4 to 6": 6, "7 to 9": 9, "10 to 12": 12, "13 and above": None}
_GROUP, _CATEGORY, _UNIT = "group", "category", "unit"


class _Votes(NamedTuple):
    """The majorities of votes on pairs of scripts."""

    base: str
    """The approach that is part of every pair."""
    counts: Mapping[str, pb.PreferenceCounts]
    """How often a script of the other approach is better, equal or worse."""
    note: str
    """The numbers of votes and pairs."""


class _Item(NamedTuple):
    """An item that has one category."""

    group: str
    category: str
    unit: str = ""
    """What it is of: items of one unit are not independent. Empty: a unit of its own."""


async def _read_votes(service: GraphServiceAsyncStub, key_file: Path, sheets: Path) -> _Votes | None:
    key = read_key(key_file, "first", "second")
    voted = [one for one in read_votes(completed_sheets(sheets, VOTES)) if one.votes]
    for comparison in voted:
        if comparison.id not in key:
            raise DataError(f"{sheets}: the votes name {comparison.id!r}, which is not in {key_file}")
    if not voted:
        return None
    # One approach is part of every pair.
    common = set.intersection(*({row["first"], row["second"]} for row in key.values()))
    base = next(iter(sorted(common, key=lambda name: (name == HUMAN, name))), None)
    if base is None:
        raise DataError(f"{key_file}: no approach is part of every pair")
    groups: dict[str, list[pb.Comparison]] = {}
    for comparison in voted:
        row = key[comparison.id]
        other = row["second"] if row["first"] == base else row["first"]
        # Figure 7 counts how often the other script is better.
        votes = comparison.votes if row["first"] == other else [_INVERSE.get(v, v) for v in comparison.votes]
        groups.setdefault(other, []).append(pb.Comparison(id=comparison.id, votes=votes))
    counts: dict[str, pb.PreferenceCounts] = {}
    for other in sorted(groups, key=lambda name: (name == HUMAN, name)):
        request = pb.AggregatePreferencesRequest(comparisons=groups[other])
        counts[other] = (await service.AggregatePreferences(request)).counts
    vote_count = sum(len(one.votes) for one in voted)
    return _Votes(base, counts, f"{vote_count} votes on {len(voted)} of {len(key)} pairs.")


async def _add_figure_7(
    alignment: AlignmentServiceAsyncStub, votes: _Votes | None, made: Reproduction
) -> None:
    """Adds the majorities above those of the paper, which stand alone without votes."""
    results = (*_PREFERENCES, "undecided")
    majorities = [
        _Item(other, name)
        for other, one in (votes.counts.items() if votes is not None else ())
        for name in results
        for _ in range(getattr(one, name))
    ]
    shares = await _measure_shares(alignment, majorities, results)
    pairs_of = Counter(one.group for one in majorities)
    rows = [
        Row([words(other), count(pairs), *(percents(shares[other, one], _SHARE_DIGITS) for one in results)])
        for other, pairs in pairs_of.items()
    ]
    rows += [
        Row(
            [
                words(f"{name} (paper)"),
                words(ABSENT),
                *(number(float(one), _SHARE_DIGITS) for one in line.split()),
                words(ABSENT),
            ],
            ruled=not place,
        )
        for place, (name, line) in enumerate(FIGURE_7.items())
    ]
    title = "Figure 7: Pairwise judgments of scripts, in percent"
    notes = ["Of the paper: compared with proScript_gen, over 150 pairs each with three votes."]
    if votes is not None:
        notes.insert(0, f"Compared with {votes.base}. {votes.note} Pairs without a vote are left out.")
    heads = ["Approach", "pairs", *_PREFERENCES, "no majority"]
    made.tables.append(Table(title, list(map(Column, heads)), rows, name="figure-7", notes=notes))
    made.figures.append(
        BarChart(
            "figure-7",
            counted(title, (cell for row in rows for cell in row.cells)),
            [row.cells[0].text for row in rows],
            {
                name: [row.cells[heads.index(name)].value for row in rows]
                for name in (_PREFERENCES if votes is None else heads[2:])
            },
            value_name="pairs, in percent",
            limits=(0, 100),
            bounds={name: [row.cells[heads.index(name)].bounds for row in rows] for name in heads[2:]},
            notes=notes,
            printed_from=len(pairs_of),
        )
    )


async def _add_revisions(
    session: Session, alignment: AlignmentServiceAsyncStub, revisions: Sequence[Revision], made: Reproduction
) -> None:
    approaches = sorted({one.approach for one in revisions}, key=lambda name: (name == HUMAN, name))
    of_script: dict[str, list[MeasuredGraph]] = {}
    for one in revisions:
        of_script.setdefault(one.id, []).append(one.measured)
    # Several people revise a script: its revisions are one sample.
    summary = await session.summarize(
        RunSample(
            index=index,
            sample_id=script,
            state=SAMPLE_STATE_SUCCEEDED,
            graphs=GraphsResult(task=GRAPH_TASK_GENERATE, reference=graphs[0].graph, graphs=graphs),
        )
        for index, (script, graphs) in enumerate(of_script.items())
    )
    made.tables.append(_distances_to_revisions(summary, revisions, approaches))
    typed = [one for one in revisions if one.types]
    if typed:
        made.tables.append(_examples(typed))
    made.tables.append(await _distribution(alignment, typed, approaches))
    shares = await _measure_shares(
        alignment,
        [_Item(one.approach, _bin(one.measured.distance.distance), one.id) for one in revisions],
        list(_BINS),
    )
    cells = {one: [percents(shares[one, name], _SHARE_DIGITS) for name in _BINS] for one in approaches}
    counts = Counter(one.approach for one in revisions)
    made.figures.append(
        BarChart(
            "figure-8",
            counted("Figure 8: Scripts by edit distance to a revision", chain(*cells.values())),
            list(_BINS),
            {approach: [cell.value for cell in line] for approach, line in cells.items()},
            value_name="revised scripts, in percent",
            label_name="edit distance",
            limits=(0, 100),
            bounds={approach: [cell.bounds for cell in line] for approach, line in cells.items()},
            notes=[
                f"Revisions: {', '.join(f'{approach} {counts[approach]}' for approach in approaches)}.",
                "Each revision of a script counts. The paper prints no values.",
            ],
        )
    )


def _bin(distance: int) -> str:
    return next(name for name, end in _BINS.items() if end is None or distance <= end)


def _distances_to_revisions(
    summary: Summary, revisions: Sequence[Revision], approaches: Sequence[str]
) -> Table:
    found = {
        figures.model: figures.distances[0]
        for figures in summary.graphs.figures
        if figures.distances and not figures.tags
    }
    rows = [
        Row(
            [
                words(approach),
                count(len({one.id for one in revisions if one.approach == approach})),
                count(found[approach].measured_count),
                estimate(found[approach].mean, _DIGITS),
                *edit_cells(found[approach]),
            ]
        )
        for approach in approaches
    ]
    for name, line in TABLE_2["dev"].items():
        distance, *edits_printed = map(float, line.split())
        cells = [number(distance, _DIGITS), *(number(one, 3) for one in edits_printed)]
        rows.append(
            Row(
                [words(f"{name} (paper)"), words(ABSENT), words(ABSENT), *cells],
                ruled=name == "proScript_gen",
            )
        )
    proven = sum(one.measured.distance.proven for one in revisions)
    return Table(
        "Table 2: Script generation, mean graph edit distance to revisions by people (dev)",
        [
            Column("Models"),
            Column("scripts"),
            Column("revisions"),
            Column("Graph Edit Dist"),
            *map(Column, EDIT_NAMES.values()),
        ],
        rows,
        name="table-2-revisions",
        notes=[
            "Means over revisions. Of two revisers of each script (section 6.3) they are the mean.",
            f"{proven} of {len(revisions)} distances are proven"
            + ("." if proven == len(revisions) else "; others are upper bounds."),
        ],
    )


def _examples(typed: Sequence[Revision]) -> Table:
    first = {kind: one for one in reversed(typed) for kind in one.types}
    # The paper's table begins with missing events.
    kinds = sorted((kind for kind in TYPES if kind in first), key=lambda kind: kind != "missing event")
    return Table(
        "Table 3: Examples for each revision type",
        [Column("Revision types"), Column("generated script"), Column("revised script")],
        [
            Row([words(kind), words(_line(first[kind].written)), words(_line(first[kind].revised))])
            for kind in kinds
        ],
        name="table-3",
        heads=3,
    )


def _line(text: str) -> str:
    return " ".join(text.split())


async def _measure_shares(
    service: AlignmentServiceAsyncStub, items: Iterable[_Item], categories: Sequence[str]
) -> Mapping[tuple[str, str], Estimate]:
    """The share of each category among the items of a group, by group and category.

    The interval is Wilson's, clustered by unit: a share is the accuracy of guessing the category always.

    Raises:
        grpc.aio.AioRpcError: The service failed.
    """
    request = MeasureAccuracyRequest(groupings=[Grouping(tags=[_GROUP, _CATEGORY])], cluster_tag=_UNIT)
    for item in items:
        for category in categories:
            tags = {_GROUP: item.group, _CATEGORY: category}
            if item.unit:
                tags[_UNIT] = item.unit
            request.items.add(gold=item.category, predicted=category, tags=tags)
    if not request.items:
        return {}
    groups = (await service.MeasureAccuracy(request)).groups
    return {(one.tags[_GROUP], one.tags[_CATEGORY]): one.accuracy for one in groups}


async def _distribution(
    alignment: AlignmentServiceAsyncStub, typed: Sequence[Revision], approaches: Sequence[str]
) -> Table:
    """The shares of types beside those of the paper, which stand alone without a typed revision."""
    named = [_Item(one.approach, kind, one.id) for one in typed for kind in one.types]
    shares = await _measure_shares(alignment, named, TYPES)
    counts = Counter(one.group for one in named)
    own_approaches = approaches if typed else ()
    rows: list[Row] = []
    for kind in TYPES:
        group, name, line = TABLE_4[kind]
        own = [percents(shares.get((approach, kind)), _DIGITS) for approach in own_approaches]
        theirs = [number(float(one), _DIGITS) for one in line.split()]
        ruled = bool(rows) and rows[-1].cells[0].text != group
        rows.append(Row([words(group), words(name), *own, *theirs], ruled=ruled))
    totals = ", ".join(f"{approach}: {counts[approach]}" for approach in own_approaches)
    return Table(
        "Table 4: Revision type distribution, in percent",
        [
            Column("Group"),
            Column("Revision types"),
            *map(Column, own_approaches),
            *(Column(name, "paper") for name in TABLE_4_MODELS),
        ],
        rows,
        name="table-4",
        heads=2,
        notes=[f"Of the types of each approach ({totals})." if totals else "No revision has a type."],
    )


async def read_sheets(
    session: Session, service: GraphServiceAsyncStub, out: Path, sheets: Path, made: Reproduction
) -> frozenset[str]:
    """Adds the tables and figures of completed sheets.

    Returns:
        The sheets with an entry.

    Raises:
        DataError: A sheet or a key cannot be read.
    """
    alignment = AlignmentServiceStub(session.client.channel)
    found = set()
    votes: _Votes | None = None
    revisions: Sequence[Revision] = ()
    try:
        if (out / VOTES_KEY).exists():
            votes = await _read_votes(service, out / VOTES_KEY, sheets)
        if (out / REVISIONS_KEY).exists():
            revisions = [one async for one in read_revisions(service, out / REVISIONS_KEY, sheets)]
    except LineError as error:
        raise DataError(str(error)) from error
    if votes is not None:
        found.add(VOTES)
    await _add_figure_7(alignment, votes, made)
    if revisions:
        found.add(REVISIONS)
        await _add_revisions(session, alignment, revisions, made)
    else:
        made.tables.append(await _distribution(alignment, (), ()))
    return frozenset(found)
