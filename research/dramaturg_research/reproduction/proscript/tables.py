"""The tables and figures of proScript that need no people: Tables 1 and 2, Figures 3 and 5."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.evaluation.v1.summary_pb2 import DistanceFigures, GraphFigures, Summary
from dramaturg.api.graph.v1 import graph_service_pb2 as pb
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.graphs.files import read_rows
from dramaturg.graphs.scores import FileScores
from dramaturg.kinds.graphs import EDIT_NAMES
from dramaturg.plots.figures import BarChart, LineChart, counted
from dramaturg.tables.model import ABSENT, Cell, Column, Row, Table
from dramaturg_research.formats.proscript import DEGREE, max_degree
from dramaturg_research.reproduction.cells import (
    NOT_SAMPLED,
    average,
    count,
    estimate,
    number,
    percents,
    words,
)
from dramaturg_research.reproduction.proscript.printed import DEGREES, RANDOM_DISTANCES, TABLE_1, TABLE_2
from dramaturg_research.reproduction.session import Session

_DIGITS = 2
_SPLITS = ("dev", "test (all)", "test (in domain)", "test (out domain)")
# In minutes.
_DURATIONS = {
    "1 minute": 1,
    "10 minutes": 10,
    "1 hour": 60,
    "1 day": 60 * 24,
    "1 week": 60 * 24 * 7,
    "1 month": 60 * 24 * 30,
    "1 year": 60 * 24 * 365,
}
_BY_TEXT, _BY_MEANING = "text", "embeddings"
_ORIENTATION_NOTE = (
    "P and R are as section 5.2 prints them: P is the share of the reference's edges that were found, R the "
    "share of the predicted edges that are right. By the convention they are the other way round."
)
_HIGH_DEGREE = 4
_AS_PRINTED = ("f1", "precision", "recall")
PEOPLE = "people"
"""The row of people who ordered shuffled events."""


class Predicted(NamedTuple):
    """The predicted edges of one method, and those of random graphs."""

    dev: Summary | None
    """On the development part. None: no model was asked."""
    test: Summary | None
    """On the test part. None: it is not among the data, or no model was asked."""
    random: pb.ScoreEdgesResponse
    random_test: pb.ScoreEdgesResponse
    """Without scores where there is no test part."""


def table_1(
    predicted: Mapping[str, Predicted],
    session: Session,
    given: Mapping[str, FileScores],
    people: pb.ScoreEdgesResponse | None,
) -> Table:
    """The scores of random graphs, of models by each method, of files and people, above those of the paper.

    Args:
        predicted: By method; the model's own is "".
        session: The models.
        given: The scores of predictions that were made before, on the development part, by file.
        people: The scores of people who ordered events of the development part. None: there are none.
    """
    absent = [number(None, _DIGITS)] * 3 * (len(_SPLITS) - 2)
    printed = {name: line.split() for name, line in TABLE_1.items()}
    drawn = predicted[""]
    first = [
        cell
        for place, part in enumerate((drawn.random, drawn.random_test))
        for cell in _rate_cells(part.summary, printed=printed["random"][3 * place :][:3])
    ]
    rest = [Cell(cell.text, printed=given) for cell, given in zip(absent, printed["random"][6:], strict=True)]
    rows = [Row([words("random"), *first, *rest])]
    notes = [
        _ORIENTATION_NOTE,
        "Means over scripts, in percent. Random: edges drawn along a random order of the events, reduced.",
    ]
    for method, one in predicted.items():
        for model in session.models if one.dev is not None else ():
            name = f"{model}, {method}" if method else model
            found = [of_model(part, model) for part in (one.dev, one.test)]
            rows.append(Row([words(name), *_part_cells(found), *absent]))
            for part, figures in zip(("dev", "test"), found, strict=True):
                if figures is not None and figures.abstentions_by_reason:
                    scored = f"{figures.edges.pair_count} of {figures.graph_count}"
                    notes.append(f"{name}, {part}: {scored} scripts have a graph; the others are left out.")
    for name, scores in given.items():
        cells = _rate_cells(scores.response.summary)
        rows.append(Row([words(name), *cells, *[number(None, _DIGITS)] * 3, *absent]))
        if scores.unanswered:
            asked = scores.response.summary.pair_count
            answered = f"{asked - len(scores.unanswered)} of {asked}"
            notes.append(f"{name}: {answered} scripts have a prediction; the others have no edges.")
    if people is not None:
        cells = _rate_cells(people.summary)
        rows.append(Row([words(PEOPLE), *cells, *[number(None, _DIGITS)] * 3, *absent]))
        notes.append(f"{PEOPLE}: {people.summary.pair_count} orders of shuffled events, each for itself.")
    rows += [
        Row(
            [words(f"{name} (paper)"), *(number(float(value), _DIGITS) for value in values)],
            ruled=name == "Pairwise (RoB)",
        )
        for name, values in printed.items()
        if name != "random"
    ]
    return Table(
        "Table 1: Edge prediction",
        [Column("Models"), *(Column(name, split) for split in _SPLITS for name in ("F1", "P", "R"))],
        rows,
        name="table-1",
        notes=notes,
    )


def _rate_cells(
    summary: pb.ScoreSummary,
    names: Sequence[str] = _AS_PRINTED,
    total: int | None = None,
    printed: Sequence[str] = ("",) * 3,
) -> Sequence[Cell]:
    """F1, P and R in percent. Without a total they are of all pairs."""
    cells = []
    for name, given in zip(names, printed, strict=True):
        rate = Estimate()
        rate.CopyFrom(getattr(summary.macro, name))
        rate.total = summary.pair_count if total is None else total
        cells.append(percents(rate, _DIGITS, given))
    return cells


def _part_cells(parts: Sequence[GraphFigures | None]) -> Sequence[Cell]:
    return [cell for part in parts for cell in _f1_cells(part)]


def of_model(edges: Summary | None, model: str, degree: str = "") -> GraphFigures | None:
    """The figures of a model, of all scripts or of those of one maximum degree."""
    tags = {DEGREE: degree} if degree else {}
    found = edges.graphs.figures if edges is not None else ()
    return next((one for one in found if one.model == model and dict(one.tags) == tags), None)


def _f1_cells(found: GraphFigures | None) -> Sequence[Cell]:
    if found is None:
        return [number(None, _DIGITS)] * 3
    # The summary has precision and recall by the convention.
    return _rate_cells(found.edges, ("f1", "recall", "precision"), found.graph_count)


def table_2(
    written: Mapping[str, Summary],
    random: DistanceFigures | None,
    session: Session,
    nearest: Mapping[tuple[str, str], Estimate],
) -> Table:
    """The distances to the references of random graphs and of models' scripts, above those of the paper."""
    rows = [_random_distances(random)]
    notes: list[str] = []
    for model in session.models:
        for task, summary in written.items():
            by_text = _distances(summary, model, _BY_TEXT)
            by_meaning = _distances(summary, model, _BY_MEANING)
            found = by_meaning or by_text
            cells = [
                estimate(one.mean if one is not None else None, _DIGITS) for one in (by_meaning, by_text)
            ]
            cells += [estimate(nearest.get((task, model)), _DIGITS), *edit_cells(found)]
            rows.append(Row([words("dev"), words(f"{model}, {task}"), *cells], ruled=len(rows) == 1))
            if found is not None and found.proven_count < found.measured_count:
                proven = f"{found.proven_count} of {found.measured_count}"
                notes.append(f"{model}, {task}: {proven} distances are proven; others are upper bounds.")
    for split, lines in TABLE_2.items():
        for index, (model, line) in enumerate(lines.items()):
            values = line.split()
            cells = [
                number(float(values[0]), _DIGITS),
                *[words(ABSENT)] * 2,
                *(number(float(one), 3) for one in values[1:]),
            ]
            rows.append(Row([words(split), words(f"{model} (paper)"), *cells], ruled=not index))
    return Table(
        "Table 2: Script generation, mean graph edit distance",
        [
            Column("Split"),
            Column("Models"),
            Column("Graph Edit Dist"),
            Column("by text"),
            Column("nearest reference"),
            *map(Column, EDIT_NAMES.values()),
        ],
        rows,
        name="table-2",
        heads=2,
        notes=[
            "Of this run: to the reference of the data. Events are matched by meaning (cosine from 0.75).",
            "Nearest reference: the least distance to a reference of the scenario; some have several.",
            "Scripts are written at the default temperature of the provider.",
            'In the column "by text" they are matched by equal texts: another wording is another event.',
            "The operations are those of the first distance that there is.",
            "Of the paper: to revisions by people.",
            "random: random graphs over the events of the references; in the paper over its own scripts.",
            f"Of the paper, random edges: {RANDOM_DISTANCES[1]} on test.",
            *notes,
        ],
    )


def _random_distances(found: DistanceFigures | None) -> Row:
    """The mean distance of graphs with the events of the reference, and of each operation."""
    distance = found.mean if found is not None else None
    cells = [estimate(distance, _DIGITS, RANDOM_DISTANCES[0]), estimate(distance, _DIGITS), words(ABSENT)]
    return Row([words("dev"), words("random"), *cells, *edit_cells(found)])


def edit_cells(found: DistanceFigures | None) -> Sequence[Cell]:
    """The mean number of each operation."""
    return [estimate(found.mean_edits[name] if found is not None else None, 3) for name in EDIT_NAMES]


def _distances(summary: Summary, model: str, matching: str) -> DistanceFigures | None:
    found = (one for one in summary.graphs.figures if one.model == model and not one.tags)
    distances = [distance for one in found for distance in one.distances]
    return next((one for one in distances if one.matching == matching), None)


def degrees(parts: Mapping[str, Sequence[ScriptGraph]]) -> Table:
    """Scripts by maximum degree, beside the counts of the paper.

    Args:
        parts: The scripts of each part, with an event for the root and one for the scenario.
    """
    rows = []
    for name, line in DEGREES.items():
        printed = ["" if one == ABSENT else one for one in line.split()]
        scripts = parts.get(name, ())
        found = Counter(min(max_degree(graph), _HIGH_DEGREE) for graph in scripts)
        # Some first events of the released train part are roots, and nothing tells which.
        known = bool(scripts) and name != "train"
        events = average([count(len(graph.events) - 2) for graph in scripts if known], _DIGITS)
        numbers = [len(scripts), *(found[degree] for degree in range(1, _HIGH_DEGREE + 1))]
        cells = [count(one) if scripts else words(ABSENT) for one in numbers]
        cells.insert(1, events)
        cells = [Cell(cell.text, cell.value, printed=one) for cell, one in zip(cells, printed, strict=True)]
        rows.append(Row([words(name), *cells]))
    heads = [*map(str, range(1, _HIGH_DEGREE)), f"{_HIGH_DEGREE} and above"]
    return Table(
        "Section 4: Scripts by maximum degree",
        [
            Column("Part"),
            Column("Scripts"),
            Column("Events"),
            *(Column(head, "Maximum degree") for head in heads),
        ],
        rows,
        name="section-4",
        notes=[
            "Events: the mean number, without the root and the scenario.",
            "The number is not known for train, where some roots are left out.",
            NOT_SAMPLED,
        ],
    )


def pooled_degree(degree: str) -> str:
    """A maximum degree, or "4+" for all from 4, which few scripts have."""
    return degree if int(degree) < _HIGH_DEGREE else f"{_HIGH_DEGREE}+"


def figure_3(file: Path) -> BarChart:
    """The released durations. Records without a duration are left out."""
    found = [row.record.get("minutes") for row in read_rows(file)]
    minutes = [one for one in found if isinstance(one, int | float) and not isinstance(one, bool)]
    places = [bisect(list(_DURATIONS.values()), one) for one in minutes]
    return BarChart(
        "figure-3",
        f"Figure 3: Scripts by typical duration (n = {len(minutes):,})",
        [*(f"< {name}" for name in _DURATIONS), "longer"],
        {
            "dev": [
                places.count(place) / len(places) if places else None for place in range(len(_DURATIONS) + 1)
            ]
        },
        value_name="share of scripts",
        label_name="duration",
        notes=[
            f"Of {len(minutes)} scripts with a duration. The paper prints no values and no bins.",
            NOT_SAMPLED,
        ],
    )


def figure_5(
    edges: Summary | None,
    random: pb.ScoreEdgesResponse,
    session: Session,
    people: pb.ScoreEdgesResponse | None,
) -> LineChart:
    """F1 of each model, of people and of random graphs by maximum degree."""
    groups = {group.value: group.summary for group in random.groups}
    counts = ", ".join(f"{one.pair_count} of degree {degree}" for degree, one in groups.items())
    lines: dict[str, list[Cell]] = {}
    for model in session.models if edges else ():
        lines[model] = [_f1_cells(of_model(edges, model, degree))[0] for degree in groups]
    for name, scores in ((PEOPLE, people), ("random", random)):
        if scores is not None:
            found = {group.value: group.summary for group in scores.groups}
            lines[name] = [_rate_cells(found.get(degree, pb.ScoreSummary()))[0] for degree in groups]
    return LineChart(
        "figure-5",
        counted("Figure 5: F1 by maximum degree of the script", chain(*lines.values())),
        list(groups),
        {name: [cell.value for cell in line] for name, line in lines.items()},
        value_name="F1, in percent",
        label_name="maximum degree",
        limits=(0, 100),
        notes=[f"Scripts: {counts}. The paper prints no values for its models."],
        bounds={name: [cell.bounds for cell in line] for name, line in lines.items()},
    )
