"""Shows what AlignmentService answered: as JSON values, or as tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from google.protobuf.message import Message

from dramaturg.api.alignment.v1 import agreement_pb2, correlation_pb2
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.cli.cells import estimated, named, number
from dramaturg.cli.platform import fail
from dramaturg.summaries.estimates import AGREEMENTS, COEFFICIENTS, INTRACLASS, KAPPAS
from dramaturg.tables.cells import p_value
from dramaturg.tables.model import Cell, Table, columns

WHOLE = "all"
"""How tables name all items."""


def write_majorities(response: agreement_pb2.MeasureAgreementResponse, group_tag: str, file: Path) -> None:
    """Writes a row for each item, with the columns that ``labels align labels`` reads, but for the annotator.

    Raises:
        typer.Exit: The file cannot be written.
    """
    rows = (
        {
            "item": one.id,
            **({group_tag: one.group} if group_tag else {}),
            "label": one.label or None,
            "votes": one.vote_count,
            "annotators": one.annotation_count,
            "by_tie_label": one.by_tie_label,
        }
        for one in response.majorities
    )
    try:
        file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")


def correlation_tables(response: correlation_pb2.CorrelateScoresResponse) -> Sequence[Table]:
    """A line for each group, level and measure, and one for every two measures of a group."""
    measures = Table("", columns("group", "level", "measure", figures=(*COEFFICIENTS, "n")))
    heads = ("Williams t", "p", "p (Holm)", "p (BH)", "difference of tau", "n")
    differences = Table("", columns("group", "first", "second", figures=heads))
    parts: list[tuple[str, correlation_pb2.CorrelateScoresResponse | correlation_pb2.CorrelationGroup]] = [
        (WHOLE, response)
    ]
    parts += [(one.group, one) for one in response.groups]
    for name, part in parts:
        for one in part.measures:
            levels: list[
                tuple[str, correlation_pb2.MeasureCorrelation | correlation_pb2.LevelCorrelation]
            ] = [("items", one)]
            levels += [("summaries", one.summary_level)] if one.HasField("summary_level") else []
            levels += [("systems", one.system_level)] if one.HasField("system_level") else []
            for level, found in levels:
                cells = (shown(getattr(found, figure)) for figure in COEFFICIENTS)
                measures.add_row(name, level, one.measure, *cells, str(found.pearson.count))
        for pair in part.differences:
            known = pair.HasField("williams_p")
            differences.add_row(
                name,
                pair.first_measure,
                pair.second_measure,
                shown(pair.williams_t),
                p_value(pair.williams_p) if known else "",
                p_value(pair.holm_p) if known else "",
                p_value(pair.false_discovery_p) if known else "",
                shown(pair.kendall_difference),
                str(pair.kendall_difference.count),
            )
    return measures, differences


def agreement_tables(response: agreement_pb2.MeasureAgreementResponse) -> Sequence[Table | str]:
    """A line for each group, and for each pair of annotators and majority label in it; then the notes."""
    heads = ("Fleiss kappa", "Krippendorff alpha", "Gwet AC1", "agreement", "n")
    groups = Table("", columns("group", figures=heads))
    # Labels that are names have neither distances nor means.
    weighted = any(pair.linear_kappa.HasField("value") for group in response.groups for pair in group.pairs)
    kappas = KAPPAS if weighted else KAPPAS[:1]
    pair_heads = ("Cohen kappa", *(("linear", "quadratic") if weighted else ()), "n")
    pairs = Table("", columns("group", "annotators", figures=pair_heads))
    single = Table("", columns("group", figures=("ICC(1,1)", "ICC(2,1)", "ICC(3,1)", "n")))
    majorities = Table("", columns("group", "majority label", figures=("items",)))
    for group in response.groups:
        name = group.group or WHOLE
        groups.add_row(name, *(shown(getattr(group, figure)) for figure in AGREEMENTS), str(group.item_count))
        for pair in group.pairs:
            annotators = f"{pair.first_annotator} - {pair.second_annotator}"
            cells = (shown(getattr(pair, figure)) for figure in kappas)
            pairs.add_row(name, annotators, *cells, str(pair.cohen_kappa.count))
        for label, count in sorted(group.majority_labels.items()):
            majorities.add_row(name, named(label), str(count))
        if group.icc_one_way.HasField("value"):
            figures = (shown(getattr(group, figure)) for figure in INTRACLASS)
            single.add_row(name, *figures, str(group.icc_one_way.count))
    notes = [f"{group.group or WHOLE}: {note}" for group in response.groups for note in group.notes]
    return groups, pairs, single, majorities, *notes, *_replacements(response)


def _replacements(response: agreement_pb2.MeasureAgreementResponse) -> Iterator[Table | str]:
    """A line for each person whose place the judge may take or not, and the answer for each group."""
    table = Table("", columns("group", "in the place of", figures=("judge", "person", "p (BY)", "items")))
    lines = []
    for group in response.groups:
        if not group.HasField("replacement"):
            continue
        found, name = group.replacement, group.group or WHOLE
        for one in found.annotators:
            table.add_row(
                name,
                one.annotator,
                number(one.judge_advantage),
                number(one.annotator_advantage),
                p_value(one.adjusted_p_value) if one.HasField("adjusted_p_value") else "",
                str(one.item_count),
            )
        if found.undefined:
            lines.append(f"{name}: no answer whether the judge may replace people: {found.undefined}")
            continue
        lines.append(
            f"{name}: the judge {'may' if found.passed else 'may not'} replace people: it takes the place of "
            f"{number(found.winning_rate)} of them (epsilon {found.epsilon:g}; a half is needed); average "
            f"advantage {number(found.average_advantage)}"
        )
    if table.rows:
        yield table
    yield from lines


def shown(estimate: Estimate) -> Cell:
    """A figure with its interval, or a note why it or its interval is missing."""
    value = estimate.value if estimate.HasField("value") else None
    interval = (estimate.lower, estimate.upper) if estimate.HasField("lower") else None
    cell = estimated(value, interval, estimate.undefined)
    if value is None or not estimate.interval_withheld:
        return cell
    return Cell(number(value), value, note=f"no interval: {estimate.interval_withheld}")


def interval_methods(response: Message) -> Sequence[str]:
    """A line that names the methods of the intervals in a response, or none where it has no interval."""
    methods = dict.fromkeys(one.interval_method for one in _estimates(response) if one.interval_method)
    return [f"intervals: {'; '.join(methods)}"] if methods else []


def _estimates(message: Message) -> Iterator[Estimate]:
    if isinstance(message, Estimate):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for part in value if field.is_repeated else [value]:
            yield from _estimates(part)
