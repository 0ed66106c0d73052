"""Reads rows of scores and labels, and makes requests of them; labels of several people as one label.

Nothing is left out silently: unusable values are refused with their line, and absent ones are
counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from dramaturg.api.alignment.v1 import agreement_pb2, correlation_pb2
from dramaturg.cli.align.options import call_alignment
from dramaturg.datasets.json_lines import LineError
from dramaturg.datasets.spreadsheet import read_table
from dramaturg.summaries.labels import HumanLabels

_NAMES = frozenset({"id", "item"})
_LEAST_SCORED = 2


@dataclass(frozen=True)
class Rows:
    """The rows of a file."""

    file: Path
    rows: Sequence[tuple[int, Mapping[str, Any]]]
    """Each with the number of its line."""

    @classmethod
    def read(cls, file: Path) -> Rows:
        """Reads JSON Lines, where the first character is ``{``, or CSV with a header.

        Raises:
            typer.BadParameter: It cannot be read; the message names the line.
        """
        try:
            rows = cls(file, read_table(file))
        except LineError as error:
            _refuse(file, error.line, error.problem)
        if not rows.rows:
            _refuse(file, 0, "has no rows")
        return rows

    def one_label_a_row(self) -> Rows:
        """The same labels, one a row, where a row has the labels of a candidate by criterion.

        Such a row has "task_id", "candidate_id" and the object "labels"; "annotator" is optional.
        """
        if not any(isinstance(row.get("labels"), Mapping) for _, row in self.rows):
            return self
        rows: list[tuple[int, Mapping[str, Any]]] = []
        for line, row in self.rows:
            labels, names = row.get("labels"), [_text(row.get(name)) for name in ("task_id", "candidate_id")]
            if not isinstance(labels, Mapping) or not all(names):
                self.refuse(line, "has no task_id, candidate_id and labels, as other rows have")
            item, annotator = "/".join(names), _text(row.get("annotator")) or "1"
            rows += [
                (line, {"item": item, "criterion": name, "annotator": annotator, "label": label})
                for name, label in labels.items()
            ]
        return Rows(self.file, rows)

    def has(self, column: str) -> bool:
        """Whether any row has the column."""
        return any(column in row for _, row in self.rows)

    def require(self, *columns: str, option: str = "") -> None:
        """Refuses a file in which a column is missing.

        Args:
            columns: The columns; an empty name is none.
            option: The option that names them. Empty: the command needs them.

        Raises:
            typer.BadParameter: No row has one of them.
        """
        for column in columns:
            if column and not self.has(column):
                named = f", which {option} names" if option else ""
                self.refuse(0, f"has no column {column!r}{named}")

    def refuse(self, line: int, problem: str) -> NoReturn:
        """Refuses the file for a fault in a line."""
        _refuse(self.file, line, problem)


def add_scores(
    request: correlation_pb2.CorrelateScoresRequest, rows: Rows, tags: Sequence[str] = ()
) -> list[str]:
    """Adds an item for each row that has a number in the column "human"; an empty cell is no score.

    The columns "id" and "item" name the row, also where they are numbers.

    Args:
        request: The request.
        rows: The rows.
        tags: The columns of clusters, groups and systems.

    Returns:
        What was left out, in words: columns without any number, rows without a human score.

    Raises:
        typer.BadParameter: A column has numbers and something else, or fewer than two rows have human scores.
    """
    cells: dict[str, dict[int, float | None]] = {}
    for line, row in rows.rows:
        for name, value in row.items():
            if name not in _NAMES and name not in tags and value is not None and value != "":
                cells.setdefault(name, {})[line] = number(value)
    columns = [name for name, values in cells.items() if any(value is not None for value in values.values())]
    for name in columns:
        for line, value in cells[name].items():
            if value is None:
                rows.refuse(line, f"has something other than a finite number in column {name!r}")
    people = cells.get("human", {})
    for line, row in rows.rows:
        if (human := people.get(line)) is not None:
            found = {name: cells[name].get(line) for name in columns if name != "human"}
            scores = {name: score for name, score in found.items() if score is not None}
            named = {name: value for name in tags if (value := _text(row.get(name)))}
            request.items.add(human=human, scores=scores, tags=named)
    if len(request.items) < _LEAST_SCORED:
        rows.refuse(0, f'has {len(request.items)} rows with a number in column "human"; 2 are needed')
    left_out = [f"column {name!r}, which has no numbers" for name in cells if name not in columns]
    if absent := len(rows.rows) - len(request.items):
        left_out.append(f"{absent} rows without a human score")
    return left_out


def group_column(rows: Rows) -> str:
    """The column that groups labels where none is named; empty if there is none."""
    return next((name for name in ("criterion", "group") if rows.has(name)), "")


def add_annotations(request: agreement_pb2.MeasureAgreementRequest, rows: Rows) -> list[str]:
    """Adds an item for each value of "item" and of the request's group tag, with the annotations of its rows.

    Returns:
        What was left out, in words: rows whose "label" is empty.

    Raises:
        typer.BadParameter: A row names no item or annotator, or repeats another's.
    """
    rows.require("item", "annotator", "label")
    items: dict[tuple[str, str], agreement_pb2.AnnotatedItem] = {}
    judged: set[tuple[str, str, str]] = set()
    unlabelled = 0
    for line, row in rows.rows:
        item, annotator, group = (_text(row.get(name)) for name in ("item", "annotator", request.group_tag))
        if not item or not annotator:
            rows.refuse(line, f"names no {'annotator' if item else 'item'}")
        labels = _labels(row.get("label"), separated=request.distance == agreement_pb2.LABEL_DISTANCE_MASI)
        if not labels:
            unlabelled += 1
            continue
        if (item, group, annotator) in judged:
            rows.refuse(line, f"labels item {item!r} a second time for annotator {annotator!r}")
        judged.add((item, group, annotator))
        if (item, group) not in items:
            tags = {
                name: value
                for name in (request.group_tag, request.cluster_tag)
                if name and (value := _text(row.get(name)))
            }
            items[item, group] = request.items.add(id=item, tags=tags)
        items[item, group].annotations.add(annotator=annotator, labels=labels)
    if not items:
        rows.refuse(0, 'has no row with something in column "label"')
    return [f"{unlabelled} rows without a label"] if unlabelled else []


def _labels(label: Any, *, separated: bool) -> list[str]:
    if isinstance(label, list):
        return [_text(one) for one in label]
    text = _text(label)
    if not text:
        return []
    return text.split("|") if separated else [text]


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def number(value: Any) -> float | None:
    """A finite number; ``None`` for anything else, truth values too."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _refuse(file: Path, line: int, problem: str) -> NoReturn:
    place = f"{file.name}: line {line}:" if line else f"{file.name}:"
    raise typer.BadParameter(f"{place} {problem}", param_hint="FILE")


_LONGEST_ID = 500
QUOTED = 40
"""The most characters of a cell that a message repeats."""
_TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class Cells:
    """One row of a file, with its line for messages.

    Args:
        rows: The file.
        line: The number of the row's line.
        row: Its cells by column.
    """

    def __init__(self, rows: Rows, line: int, row: Mapping[str, Any]) -> None:
        self._rows, self.line, self._row = rows, line, row

    def text(self, column: str) -> str:
        """The text of a column; empty if there is none."""
        value = self._row.get(column)
        return "" if value is None else str(value).strip()

    def key(self, column: str) -> str:
        """The text of a column, or its digest if ids may not be as long: equal texts have equal keys."""
        text = self.text(column)
        return text if len(text) <= _LONGEST_ID else sha256(text.encode(errors="surrogatepass")).hexdigest()

    def quoted(self, column: str) -> str:
        """The text of a column for messages, cut if it is long."""
        text = self.text(column)
        return repr(text if len(text) <= QUOTED else f"{text[:QUOTED]}...")

    def required(self, column: str) -> str:
        """The text of a column.

        Raises:
            typer.BadParameter: Nothing does.
        """
        if not (text := self.text(column)):
            self._rows.refuse(self.line, f"has nothing in column {column!r}")
        return text

    def number(self, column: str, *, lowest: float = -1e12, highest: float = 1e12) -> float | None:
        """The number in a column; ``None`` if the column is empty.

        Raises:
            typer.BadParameter: The text is no number, or out of range.
        """
        if not self.text(column):
            return None
        found = number(self._row[column])
        if found is None or not lowest <= found <= highest:
            wanted = f"no number from {lowest:g} to {highest:g}"
            self._rows.refuse(self.line, f"has {self.quoted(column)} in column {column!r}, {wanted}")
        return found

    def score(self, column: str) -> float | None:
        """The number in a column, 1 for true and 0 for false; ``None`` where nothing stands there."""
        truth = {"true": 1.0, "false": 0.0, "pass": 1.0, "fail": 0.0}.get(self.text(column).lower())
        return self.number(column) if truth is None else truth

    def truth(self, column: str) -> bool | None:
        """Whether a column says true; ``None`` if the column is empty.

        Raises:
            typer.BadParameter: It says neither true nor false.
        """
        if not (text := self.text(column).lower()):
            return None
        if text not in _TRUTHS:
            refused = f"has {self.quoted(column)} in column {column!r}, neither true nor false"
            self._rows.refuse(self.line, refused)
        return _TRUTHS[text]


DISTANCES = {
    "nominal": agreement_pb2.LABEL_DISTANCE_NOMINAL,
    "ordinal": agreement_pb2.LABEL_DISTANCE_ORDINAL,
    "interval": agreement_pb2.LABEL_DISTANCE_INTERVAL,
    "masi": agreement_pb2.LABEL_DISTANCE_MASI,
}
"""The distances of labels by name."""
MORE_THAN_HALF = "more-than-half"
RULES = {
    MORE_THAN_HALF: agreement_pb2.MAJORITY_RULE_MORE_THAN_HALF,
    "plurality": agreement_pb2.MAJORITY_RULE_PLURALITY,
}
"""How the label of an item is found, by the name of the rule."""

Majority = Annotated[str, typer.Option(metavar="RULE", help=f"Majority rule: {', '.join(RULES)}.")]
TieLabel = Annotated[str, typer.Option(metavar="LABEL", help="Label of undecided items. Default: none.")]
Judge = Annotated[
    str, typer.Option(metavar="ANNOTATOR", help="Judge that may take the place of the other annotators.")
]
Epsilon = Annotated[
    float, typer.Option(min=0, max=1, help="By how much the judge may be worse; 0.1 for a crowd, 0.15, 0.2.")
]

_GOOD = {"pass": True, "true": True, "1": True, "fail": False, "false": False, "0": False}


def rule_named(name: str) -> agreement_pb2.MajorityRule.ValueType:
    """A rule by its name.

    Raises:
        typer.BadParameter: There is no such rule.
    """
    if name not in RULES:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(RULES)}", param_hint="--majority")
    return RULES[name]


def read_labels(file: Path, rule: str, tie_label: str, target: str | None, *, failed: int = 1) -> HumanLabels:
    """Reads labels, and has AlignmentService find the one of each item.

    Args:
        file: Rows with item, annotator, label and, where there are several, criterion; or rows with task_id,
            candidate_id and labels by criterion.
        rule: The name of the rule by which annotators decide.
        tie_label: The label of items that they leave undecided; empty: they have none.
        target: Where AlignmentService listens; ``None``: it is started here.
        failed: The exit code where the call fails.

    Raises:
        typer.BadParameter: The file cannot be used, or a label is neither good nor bad.
        typer.Exit: The call failed.
    """
    rows = Rows.read(file).one_label_a_row()
    grouped = "criterion" if rows.has("criterion") else ""
    request = agreement_pb2.MeasureAgreementRequest(
        group_tag=grouped, majority_rule=rule_named(rule), tie_label=tie_label, list_majorities=True
    )
    left_out = add_annotations(request, rows)
    response = call_alignment(target, lambda stub: stub.MeasureAgreement(request), failed=failed)
    labels: dict[tuple[str, str], bool] = {}
    for one in response.majorities:
        if one.label:
            labels[one.id, one.group] = _good(one.label, file)
    return HumanLabels(labels, len(response.majorities) - len(labels), left_out)


def _good(label: str, file: Path) -> bool:
    good = _GOOD.get(label.strip().lower())
    if good is None:
        known = ", ".join(_GOOD)
        raise typer.BadParameter(f"{file.name}: label {label!r} is none of {known}", param_hint="--labels")
    return good
