"""``dramaturg research graphs predict``.

Registered by the entry point ``edges`` of the group "dramaturg.commands.graphs".
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dramaturg.cli.platform import fail
from dramaturg.cli.terminal import tell_next
from dramaturg.graphs.files import FileError, read_rows
from services.edges.display import progress_bar
from services.edges.model import ModelMissingError, load_model
from services.edges.predictions import predict_rows

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
