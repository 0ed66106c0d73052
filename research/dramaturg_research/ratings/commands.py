"""``research ratings``: ratings for people to check, and what they found (SimulBench, section 4.3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import grpc
import typer

from dramaturg.api.alignment.v1.accuracy_pb2 import LabelledItem, MeasureAccuracyRequest
from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.cli.local import service_channel
from dramaturg.cli.options import AlignmentTarget, AsJson
from dramaturg.cli.platform import fail, run
from dramaturg.cli.tables import interval, number
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.datasets.json_lines import LineError
from dramaturg.datasets.sampling import draw
from dramaturg.datasets.spreadsheet import read_table, write_table
from dramaturg.service.errors import from_rpc_error
from dramaturg.summaries.estimates import estimate
from dramaturg_research.ratings.rating_sheet import COLUMNS, Checked, rated_replies, read_checked

app = typer.Typer(no_args_is_help=True, help="Samples ratings for people to check, and reads their answers.")


@app.command("sample")
def sample(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS.jsonl", help="Results of dialogues that eval wrote.")
    ],
    destination: Annotated[Path, typer.Argument(metavar="SHEET.csv", help="The sheet to write.")],
    count: Annotated[int, typer.Option(min=1, help="Number of ratings.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
) -> None:
    """Draws a sample of ratings for people to check, without abstentions.

    People write yes or no into the column "reasonable" and may write what they would have given into
    "own_rating".

    For example:

        dramaturg research ratings sample out/results.jsonl sheet.csv --count 100 --seed 7
    """
    try:
        drawn = draw(rated_replies(results), count, seed)
        write_table(destination, COLUMNS, drawn)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}")
    except LineError as error:
        fail(str(error))
    echo(f"{len(drawn)} ratings to {destination}", err=True)
    tell_next("research", "ratings", "review", destination)


@app.command("review")
def review(
    sheet: Annotated[Path, typer.Argument(metavar="SHEET.csv", help="The completed sheet.")],
    target: AlignmentTarget = None,
    as_json: AsJson = False,
) -> None:
    """Reports the share of reasonable ratings, and how many others are too high or too low.

    For example:

        dramaturg research ratings review sheet.csv
    """
    try:
        found = read_checked([row for _, row in read_table(sheet)])
    except OSError as error:
        fail(f"{sheet}: {error.strerror or error}")
    except LineError as error:
        fail(str(error))
    except ValueError as error:
        fail(f"{sheet}: {error}")
    try:
        share = run(_share(target, found))
    except grpc.aio.AioRpcError as failure:
        fail(f"AlignmentService: {from_rpc_error(failure).message}", code=1)
    if as_json:
        typer.echo(json.dumps({**found._asdict(), "reasonable_share": share}))
        return
    echo(
        f"{found.reasonable} of {found.reasonable + found.unreasonable} ratings are reasonable: "
        f"{number(share['value'], 2)} ({interval(share['lower'], share['upper'], 2)}); "
        f"{found.unchecked} not checked"
    )
    echo(f"of the others {found.too_high} are too high and {found.too_low} too low")
    tell_next("labels", "align", "scores", "FILE")


async def _share(target: str | None, found: Checked) -> Mapping[str, float | None]:
    """The share of reasonable ratings with Wilson's interval."""
    items = [LabelledItem(gold="reasonable", predicted="reasonable")] * found.reasonable
    items += [LabelledItem(gold="reasonable", predicted="unreasonable")] * found.unreasonable
    async with service_channel("alignment", target) as channel:
        response = await AlignmentServiceStub(channel).MeasureAccuracy(MeasureAccuracyRequest(items=items))
    return estimate(response.groups[0].accuracy)
