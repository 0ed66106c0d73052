"""``dramaturg runs datasets``: datasets that a gateway keeps for runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

import typer

from dramaturg.api.evaluation.v1.dataset_service_pb2 import (
    DatasetState,
    UploadedDataset,
)
from dramaturg.api.evaluation.v1.run_pb2 import DATASET_FORMAT_UNSPECIFIED, DatasetFormat
from dramaturg.cli.options import AsJson, FileFormat
from dramaturg.cli.platform import fail, output
from dramaturg.cli.runs.connection import DEFAULT_TARGET, RunTarget, ask_gateway, show_upload, upload_size
from dramaturg.cli.tables import print_tables
from dramaturg.cli.terminal import tell_next
from dramaturg.client import DramaturgClient
from dramaturg.results.names import value_name
from dramaturg.tables.model import Table, columns

app = typer.Typer(
    no_args_is_help=True,
    help="Uploads datasets to a gateway for runs, lists and deletes them.\n\n"
    "Exit codes: 0 fine, 1 the gateway did not answer, 2 wrong usage or refused.",
)

DatasetId = Annotated[str, typer.Argument(metavar="DATASET", help="The SHA-256 of the dataset's content.")]


@app.command("upload")
def upload(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="The rows.")],
    target: RunTarget = DEFAULT_TARGET,
    form: FileFormat = None,
    name: Annotated[str | None, typer.Option(help="Display name. Default: the name of FILE.")] = None,
    as_json: AsJson = False,
) -> None:
    """Uploads a file and prints the id of the dataset. Content that the gateway has is not sent again.

    "dramaturg eval datasets/ID --by-reference --kind KIND --target HOST:PORT" evaluates its rows.

    For example:

        dramaturg runs datasets upload tasks.jsonl
    """
    wanted = DATASET_FORMAT_UNSPECIFIED
    if form is not None:
        wanted = DatasetFormat.Value(f"DATASET_FORMAT_{form.name}")
    try:
        dataset = ask_gateway(
            target,
            lambda client: client.datasets.upload(
                file, form=wanted, display_name=name, on_progress=show_upload
            ),
        )
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")
    if as_json:
        typer.echo(json.dumps(_describe(dataset), ensure_ascii=False))
        return
    typer.echo(dataset.id)
    tell_next("eval", f"datasets/{dataset.id}", "--by-reference", "--kind", "KIND", "--target", target)


@app.command("list")
def list_datasets(
    target: RunTarget = DEFAULT_TARGET,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of datasets.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Lists datasets, the newest first."""
    found = ask_gateway(target, lambda client: _find(client, limit))
    if as_json:
        typer.echo(json.dumps({"datasets": [_describe(one) for one in found]}, ensure_ascii=False))
        return
    table = Table(
        "", columns("dataset", texts=("name", "format", "state", "created"), figures=("bytes",)), heads=1
    )
    for one in found:
        shown = _describe(one)
        table.add_row(
            one.id, *(shown[key] for key in ("name", "format", "state", "created")), upload_size(one)
        )
    print_tables(output(), table)
    tell_next("eval", "datasets/ID", "--by-reference", "--kind", "KIND", "--target", target)


@app.command("delete")
def delete(dataset_id: DatasetId, target: RunTarget = DEFAULT_TARGET) -> None:
    """Deletes a dataset. Runs whose samples are read are unaffected."""
    ask_gateway(target, lambda client: client.datasets.delete(dataset_id))
    tell_next("runs", "datasets", "list", "--target", target)


async def _find(client: DramaturgClient, limit: int) -> Sequence[UploadedDataset]:
    found: list[UploadedDataset] = []
    async with aclosing(client.datasets.find()) as datasets:
        async for dataset in datasets:
            found.append(dataset)
            if len(found) == limit:
                break
    return found


def _describe(dataset: UploadedDataset) -> dict[str, Any]:
    return {
        "id": dataset.id,
        "name": dataset.display_name,
        "format": value_name(DatasetFormat, dataset.format).lower(),
        "state": value_name(DatasetState, dataset.state).lower(),
        "bytes": dataset.byte_count,
        "received_bytes": dataset.received_byte_count,
        "created": dataset.create_time.ToDatetime().isoformat(timespec="seconds") + "Z",
    }
