"""``dramaturg research graphs predict``: predictions for a file of scripts.

Registered by the entry point ``edges`` of the group "dramaturg.commands.graphs".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import tell_next
from dramaturg.graphs.files import FileError, GraphRecord, RecordError, Row, read_record, read_rows
from services.edges.inference import WindowError, infer
from services.edges.model import ModelMissingError, TrainedModel, load_model
from services.edges.order import MAX_EVENTS, decode


@contextmanager
def progress_bar(console: Console, what: str, total: int) -> Iterator[Callable[[], None]]:
    """Shows how many of ``total`` are done; the function that is given counts one."""
    with progress_bars(console) as bars:
        task = bars.add_task(what, total=total, note="")
        yield lambda: bars.advance(task)


def progress_bars(console: Console) -> Bars:
    """Bars with a description, a count, the remaining time and a note."""
    return Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )


def predict_rows(
    model: TrainedModel, rows: Iterable[Row], threshold: float, advance: Callable[[], None]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Predicts the edges of scripts.

    Args:
        model: The model.
        rows: Records of events; their edges are ignored.
        threshold: Edges with a probability above this are predicted.
        advance: Called after each row.

    Returns:
        A record for each script with ``id``, ``scenario``, ``unordered_nodes`` and ``edges``, the format of
        proScript's published predictions; and the reason for each failed row, by id.
    """
    predictions, failures = [], {}
    for row in rows:
        try:
            predictions.append({"id": row.id, **_predict(model, read_record(row.record), threshold)})
        except (RecordError, WindowError) as problem:
            failures[row.id] = str(problem)
        advance()
    return predictions, failures


def _predict(model: TrainedModel, record: GraphRecord, threshold: float) -> dict[str, Any]:
    ids, texts = list(record.events), list(record.events.values())
    if not record.scenario.strip():
        raise RecordError("has no scenario")
    if not 2 <= len(ids) <= MAX_EVENTS:
        raise RecordError(f"has {len(ids)} events; 2 to {MAX_EVENTS} can be ordered")
    if not all(text.strip() for text in texts):
        raise RecordError("has an event without text")
    edges = decode(infer(model.encoder, record.scenario, texts), len(ids), threshold)
    return {
        "scenario": record.scenario,
        "unordered_nodes": record.events,
        "edges": [f"{ids[source]}->{ids[target]}" for source, target in sorted(edges)],
    }


app = typer.Typer()

Device = Annotated[
    str | None, typer.Option(help='A torch device, e.g. "cpu". Default: the fastest available.')
]
Threads = Annotated[
    int, typer.Option(min=0, max=1024, help="Threads of the linear algebra. 0: one for each core.")
]


@app.command("predict")
def predict_command(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Records of events, .json or .jsonl.")],
    model: Annotated[Path, typer.Option("--model", "-m", help="The folder of the model.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file of predictions, .json.")],
    threshold: Annotated[
        float | None, typer.Option(min=0, max=1, help="Default: the threshold of the model's card.")
    ] = None,
    threads: Threads = 0,
    device: Device = None,
) -> None:
    """Predicts the edges of scripts, for "dramaturg research graphs score".

    For example:

        dramaturg research graphs predict dev.json -m model -o predictions.json

        dramaturg research graphs score predictions.json dev.json
    """
    try:
        rows = read_rows(data)
        loaded = load_model(model, device=device, threads=threads)
    except (FileError, ModelMissingError) as error:
        fail(str(error))
    used = loaded.card.threshold if threshold is None else threshold
    with progress_bar(Console(stderr=True), "scripts", len(rows)) as advance:
        predictions, failures = predict_rows(loaded, rows, used, advance)
    output.write_text(json.dumps(predictions, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for row, problem in failures.items():
        typer.echo(f"{row}: {problem}", err=True)
    typer.echo(f"{len(predictions)} of {len(rows)} scripts predicted at threshold {used:g}: {output}")
    tell_next("research", "graphs", "score", output, "REFERENCES")
    if failures:
        raise typer.Exit(1)
