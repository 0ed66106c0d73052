"""Options that several commands have, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dramaturg.cli.judge_selection import GoldAnswerName, MechanismName
from dramaturg.datasets import Format

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="The samples: JSON Lines, CSV or Parquet, by the end of the name; - reads standard input.",
    ),
]
FileFormat = Annotated[
    Format | None,
    typer.Option("--format", help="How FILE is written. Default: by the end of the name, else jsonl."),
]
Target = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="The gateway. Default: one started here.")
]
AlignmentTarget = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="A gateway, or AlignmentService. Default: one started here."),
]
Judges = Annotated[
    list[str] | None,
    typer.Option(
        "--judge", metavar="ROLE=NAME", help="The judge of a role; a role named again gets a panel."
    ),
]
ModelsUnderTest = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="MODEL", help="A model under test; may stand several times."),
]
JudgeModels = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="[ROLE=]MODEL", help="The model of a role's judges, or of all judges."),
]
Mechanism = Annotated[
    MechanismName | None, typer.Option(help="Who judges. Default: as the row says, else agents.")
]
GoldAnswer = Annotated[
    GoldAnswerName | None,
    typer.Option(help="Where the gold answer comes from. Default: as the row says, else pooled."),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="DIR", help="Where results go. Default: out/<time, UTC>."),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, and no table.")
]
Concurrency = Annotated[int, typer.Option(min=1, max=256, help="Samples evaluated at once.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first so many samples.")]
Timeout = Annotated[float, typer.Option(min=0.1, help="The most seconds for one sample.")]
