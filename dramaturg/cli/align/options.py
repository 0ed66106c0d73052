"""What the commands of alignment have in common: options, the call, and how they end."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dramaturg.cli.align.connection import call_alignment
from dramaturg.cli.lazy_group import MORE
from dramaturg.cli.options import AlignmentTarget, AsJson
from dramaturg.cli.platform import output
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import Terminal, tell_next
from dramaturg.tables.model import Table

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

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
