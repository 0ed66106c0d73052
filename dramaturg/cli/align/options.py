"""What the commands of alignment have in common: options, the call, and how its answer is shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import grpc
import typer
from google.protobuf.message import Message

from dramaturg.api.alignment.v1 import agreement_pb2, correlation_pb2
from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.cli.lazy_group import MORE
from dramaturg.cli.local import service_channel
from dramaturg.cli.options import AlignmentTarget, AsJson
from dramaturg.cli.output_files import write_json_lines
from dramaturg.cli.platform import fail, output, run
from dramaturg.cli.tables import estimated, named, number, print_tables
from dramaturg.cli.terminal import Terminal, tell_next
from dramaturg.service.errors import from_rpc_error
from dramaturg.summaries.estimates import AGREEMENTS, COEFFICIENTS, INTRACLASS, KAPPAS
from dramaturg.tables.model import Cell, Table, columns, p_value

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub


T = TypeVar("T")


def call_alignment(
    target: str | None,
    method: Callable[[AlignmentServiceAsyncStub], Awaitable[T]],
    *,
    failed: int = 1,
) -> T:
    """Calls AlignmentService.

    Args:
        target: Where it listens, as ``host:port``; ``None``: one is started here, for the length of the call.
        method: Makes the call.
        failed: The exit code where the call fails.

    Raises:
        typer.Exit: With a message: where the call failed, or (2) where there is no service to be started.
    """

    async def call() -> T:
        async with service_channel("alignment", target) as channel:
            return await method(AlignmentServiceStub(channel))

    try:
        return run(call())
    except grpc.aio.AioRpcError as failure:
        error = from_rpc_error(failure)
        fail(f"{target or 'the alignment service'}: {error.code.name}: {error.message}", code=failed)


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
    write_json_lines(file, rows)


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


Response = TypeVar("Response")

File = Annotated[
    Path,
    typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="JSON Lines, or CSV with a header."),
]
Resamples = Annotated[
    int,
    typer.Option(
        min=0,
        max=20_000,
        help="Resamples of ranks and ratings; 0: no intervals.",
        rich_help_panel=MORE,
    ),
]
Level = Annotated[
    float,
    typer.Option(
        min=0.5,
        max=0.999,
        help="Confidence level of the intervals.",
        rich_help_panel=MORE,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0,
        max=2**64 - 1,
        help="Seed of the resamples.",
        rich_help_panel=MORE,
    ),
]
Cluster = Annotated[
    str,
    typer.Option(metavar="COLUMN", help="Column of clusters for resampling, e.g. the task. Default: none."),
]
GroupBy = Annotated[str, typer.Option(metavar="COLUMN", help="Column of groups. Default: none.")]


@dataclass(frozen=True)
class Asked:
    """The options of every such command."""

    target: AlignmentTarget = None
    level: Level = 0.95
    as_json: AsJson = False

    @property
    def choices(self) -> Mapping[str, Any]:
        """How intervals are made."""
        return {"confidence_level": self.level}

    def call(self, method: Callable[[AlignmentServiceAsyncStub], Awaitable[Response]]) -> Response:
        """Calls AlignmentService.

        Raises:
            typer.Exit: With a message: where the call failed, or (2) where there is no service to be started.
        """
        return call_alignment(self.target, method)

    def show(
        self,
        figures: Mapping[str, Any],
        tables: Iterable[Table | str],
        left_out: Sequence[str] = (),
        methods: Sequence[str] = (),
        *,
        then: Sequence[object],
    ) -> None:
        """Prints what came of it; on standard error what was not used, and the next command.

        Args:
            figures: What ``--json`` prints beside the choices and what was left out.
            tables: What is printed else.
            left_out: What was not used, in words.
            methods: Lines below the tables, such as the methods of the intervals.
            then: The arguments of the command that a user is likely to want next.
        """
        tell(left_out)
        if self.as_json:
            print_json({**self.choices, **figures}, left_out)
        else:
            print_tables(output(), *tables, *methods)
            tell_next(*then)


@dataclass(frozen=True)
class Resampled(Asked):
    """The further options of commands that resample."""

    resamples: Resamples = 2000
    seed: Seed = 0

    @property
    def choices(self) -> Mapping[str, Any]:
        """How intervals are made."""
        return {**super().choices, "resamples": self.resamples, "seed": self.seed}

    @property
    def request(self) -> Mapping[str, Any]:
        """The same as fields of a request."""
        return {
            "confidence_level": self.level,
            "resample_count": self.resamples,
            "seed": self.seed,
        }


def tell(left_out: Sequence[str]) -> None:
    """Reports on standard error what was not used."""
    for one in left_out:
        Terminal(stderr=True).print(f"left out: {one}")


def print_json(figures: Mapping[str, Any], left_out: Sequence[str]) -> None:
    """Prints one JSON object."""
    printed = {**figures, "left_out": list(left_out)}
    sys.stdout.write(json.dumps(printed, ensure_ascii=False, allow_nan=False) + "\n")
