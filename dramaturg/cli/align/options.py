"""Options that the commands of alignment have in common, and how they print."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="JSON Lines, or CSV with a header.")]
Target = Annotated[
    str | None,
    typer.Option(help="Where AlignmentService listens, as HOST:PORT. Without it one is started here."),
]
Resamples = Annotated[int, typer.Option(min=0, max=20_000, help="Bootstrap resamples; 0: no intervals.")]
Level = Annotated[float, typer.Option(min=0.5, max=0.999, help="The level of the intervals.")]
Seed = Annotated[int, typer.Option(min=0, max=2**64 - 1, help="The seed of the resamples.")]
Cluster = Annotated[
    str,
    typer.Option(
        metavar="COLUMN", help="The column whose values are drawn as wholes, such as the task. Default: none."
    ),
]
GroupBy = Annotated[
    str, typer.Option(metavar="COLUMN", help="The column to measure apart by. Default: none.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def tell(left_out: Sequence[str]) -> None:
    """Says on standard error what was not used."""
    for one in left_out:
        Console(stderr=True).print(f"left out: {one}", markup=False, highlight=False)


def print_json(figures: Mapping[str, Any], left_out: Sequence[str]) -> None:
    """Prints one JSON object."""
    printed = {**figures, "left_out": list(left_out)}
    sys.stdout.write(json.dumps(printed, ensure_ascii=False, allow_nan=False) + "\n")


def choices(request: Any) -> dict[str, Any]:
    """How intervals were made."""
    return {
        "confidence_level": request.confidence_level,
        "resamples": request.resample_count,
        "seed": request.seed,
    }
