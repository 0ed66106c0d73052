"""``dramaturg research convert simulbench``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dramaturg.api.evaluation.v1.dialogues_pb2 import EvaluateDialoguesRequest, SimulateDialogueRequest
from dramaturg.cli.output_files import write_messages
from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.datasets.json_lines import LineError, json_document, json_values
from dramaturg_research.formats.simulbench import Skipped, read_scripts, read_tasks


def simulbench(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="A released file of scripts, or of tasks.")],
    destination: Annotated[Path, typer.Argument(metavar="DST", help="The file of rows to write.")],
    tasks: Annotated[bool, typer.Option("--tasks", help="SRC holds tasks, not test scripts.")] = False,
    overrides: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Overrides of tasks (task_specific_config.json); with --tasks."),
    ] = None,
) -> None:
    """Converts the released format of SimulBench.

    Test scripts become rows of the kind "dialogues", with the tags "subset" (last_only, first_challenge,
    subsequent_challenge) and "kind" (stateless, stateful); tasks become rows of "simulate" with the tag
    "kind". Invalid rows are named on standard error and left out; the exit code is then 1.

    For example:

        dramaturg research convert simulbench simulbench_all.jsonl scripts.jsonl

        dramaturg research convert simulbench simulbench_tasks.jsonl tasks.jsonl --tasks
    """
    if overrides is not None and not tasks:
        fail("--overrides changes tasks and requires --tasks")
    rows = _read(source)
    made: Sequence[EvaluateDialoguesRequest] | Sequence[SimulateDialogueRequest]
    skipped: Sequence[Skipped]
    if tasks:
        read = read_tasks(rows, {} if overrides is None else _read_object(overrides))
        made, skipped = read.requests, read.skipped
    else:
        scripts = read_scripts(rows)
        made, skipped = scripts.requests, scripts.skipped
    write_messages(destination, made)
    for line, reason in skipped:
        place = f"{source}: line {line}" if line else str(overrides)
        echo(f"{place}: {reason}; left out", err=True)
    for tag in ("subset", "kind"):
        counts = Counter(row.tags[tag] for row in made if tag in row.tags)
        if counts:
            listed = ", ".join(f"{count} {name}" for name, count in counts.most_common())
            echo(f"{tag}: {listed}", err=True)
    noun = "tasks" if tasks else "test scripts"
    echo(f"{len(made)} {noun} to {destination}; {len(skipped)} left out", err=True)
    tell_next(*(("research", "simulate") if tasks else ("eval",)), destination)
    raise typer.Exit(1 if any(line for line, _ in skipped) else 0)


def _read(file: Path) -> Sequence[tuple[int, Any]]:
    try:
        rows = list(json_values(file))
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")
    except LineError as error:
        fail(str(error))
    if not rows:
        fail(f"{file}: there are no rows")
    return rows


def _read_object(file: Path) -> dict[str, Any]:
    try:
        found = json_document(file)
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")
    except LineError as error:
        fail(str(error))
    if not isinstance(found, dict):
        fail(f"{file}: is not an object but {type(found).__name__}")
    return found
