"""``dramaturg research convert proscript``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.cli.output_files import write_messages
from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.graphs.files import FileError, read_rows
from dramaturg_research.formats.proscript import DEGREE, convert_rows


def proscript(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="References, .json or .jsonl.")],
    destination: Annotated[Path, typer.Argument(metavar="DST", help="The file of rows to write.")],
    graphs: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL=FILE", help="Predictions of a model, matched by id; repeatable."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="MEMBER", help='A member that becomes a tag, besides "domain".'),
    ] = None,
) -> None:
    """Converts the released format of proScript into rows of the kind "graphs".

    Each script becomes a row with the tag "degree" (the largest number of edges into, or out of, one
    event), and "domain" where the record has it. The root that the release calls NONE gets its text,
    "decided to" and the scenario. Predictions that are there already are measured beside what models
    predict anew. Invalid records are named on standard error and left out; the exit code is then 1.

    For example:

        dramaturg research convert proscript proscript_dev.json dev.jsonl

        dramaturg research convert proscript references.json rows.jsonl --graphs my-model=predictions.json
    """
    files: dict[str, Path] = {}
    for text in graphs or ():
        model, equals, file = text.partition("=")
        if not (model and equals and file):
            fail(f"--graphs {text!r} is not of the form MODEL=FILE")
        if model in files:
            fail(f"--graphs names the model {model!r} twice")
        files[model] = Path(file)
    try:
        rows = read_rows(source)
        if not rows:
            fail(f"{source}: there are no rows")
        conversion = convert_rows(
            rows,
            source=source.name,
            tags=tag or (),
            predictions={model: read_rows(file) for model, file in files.items()},
        )
    except FileError as error:
        fail(str(error))
    write_messages(destination, conversion.requests)
    for name, row_id, reason in conversion.skipped:
        echo(f"{name}: {row_id}: {reason}; left out", err=True)
    degrees = Counter(int(request.tags[DEGREE]) for request in conversion.requests)
    counted = ", ".join(f"{count} of degree {degree}" for degree, count in sorted(degrees.items()))
    echo(f"{counted or 'nothing'}", err=True)
    echo(f"{len(conversion.requests)} scripts to {destination}; {len(conversion.skipped)} left out", err=True)
    tell_next("eval", destination)
    raise typer.Exit(1 if conversion.skipped else 0)
