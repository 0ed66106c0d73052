"""``dramaturg research convert coscript``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.cli.output_files import write_messages
from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.datasets.json_lines import LineError
from dramaturg_research.formats import coscript as released


def coscript(
    paths: Annotated[
        list[Path], typer.Argument(metavar="SRC... DST", help="CoScript files, then the file to write.")
    ],
) -> None:
    """Converts the released CoScript format (JSON array or JSON Lines).

    Each SRC holds the scripts of one model, named by the file's stem; rows of the same id and specific
    goal become the candidates of one task. Steps lose their numbers, and the tag "topic" is the row's
    category. Invalid rows are named on standard error and left out; the exit code is then 1.

    For example:

        dramaturg research convert coscript test_data.json tasks.jsonl

        dramaturg research convert coscript gpt.json llama.json qwen.json tasks.jsonl
    """
    *sources, destination = paths
    if not sources:
        raise typer.BadParameter("needs one or more SRC, then DST", param_hint="SRC... DST")
    repeated = [stem for stem, count in Counter(source.stem for source in sources).items() if count > 1]
    if repeated:
        fail(f"several files would name the same model: {', '.join(repeated)}; rename one")
    files = []
    for source in sources:
        try:
            files.append((source.stem, released.read_file(source)))
        except OSError as error:
            fail(f"{source}: {error.strerror or error}")
        except LineError as error:
            fail(str(error))
    for source, (_, rows) in zip(sources, files, strict=True):
        if not rows:
            fail(f"{source}: there are no rows")
    conversion = released.convert(files)
    write_messages(destination, conversion.requests)
    for skipped in conversion.skipped:
        echo(f"{skipped.source}: row {skipped.row}: {skipped.reason}", err=True)
    candidates = sum(len(request.candidates) for request in conversion.requests)
    echo(
        f"{len(conversion.requests)} tasks with {candidates} candidates to {destination}; "
        f"{len(conversion.skipped)} rows left out",
        err=True,
    )
    tell_next("eval", destination)
    raise typer.Exit(1 if conversion.skipped else 0)
