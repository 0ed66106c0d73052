"""``dramaturg ratings``: ratings for people to check, and what they found (SimulBench, section 4.3)."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import grpc
import typer
from google.protobuf.json_format import ParseDict, ParseError

from dramaturg.api.alignment.v1.accuracy_pb2 import LabelledItem, MeasureAccuracyRequest
from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueResult
from dramaturg.cli.decisions.figures import estimate
from dramaturg.cli.local import service_channel
from dramaturg.cli.options import AlignmentTarget, AsJson
from dramaturg.cli.platform import fail, run
from dramaturg.cli.terminal import echo
from dramaturg.service.errors import from_rpc_error

app = typer.Typer(no_args_is_help=True, help="Has people check ratings.")

COLUMNS = (
    "script_id",
    "task",
    "dialogue",
    "model",
    "reply",
    "judge",
    "rating",
    "rationale",
    "reasonable",
    "own_rating",
)
"""The columns of the sheet; the last two are for people."""

_YES, _NO = frozenset({"yes", "y"}), frozenset({"no", "n"})


class Checked(NamedTuple):
    """What people found."""

    reasonable: int
    """Ratings that are reasonable."""
    unreasonable: int
    """Ratings that are not."""
    unchecked: int
    """Rows without an answer."""
    too_high: int
    """Ratings above the person's own, among the unreasonable ones that have one."""
    too_low: int
    """Ratings below it."""


@app.command("sample")
def sample(
    results: Annotated[Path, typer.Argument(metavar="RESULTS.jsonl", help="What evaluate dialogues wrote.")],
    destination: Annotated[Path, typer.Argument(metavar="SHEET.csv", help="The sheet to write.")],
    count: Annotated[int, typer.Option(min=1, help="How many ratings.")] = 100,
    seed: Annotated[int, typer.Option(help="The seed by which they are drawn.")] = 0,
) -> None:
    """Draws ratings for people to check; abstentions are not among them.

    People write yes or no into the column "reasonable" and may write what they would have given into
    "own_rating".

    For example:

        dramaturg ratings sample out/results.jsonl sheet.csv --count 100 --seed 7
    """
    try:
        drawn = draw(_rated(results), count, seed)
        with destination.open("w", encoding="utf-8-sig", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(drawn)
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}")
    except (ValueError, ParseError) as error:
        fail(f"{results}: {error}")
    echo(f"{len(drawn)} ratings to {destination}", err=True)


@app.command("review")
def review(
    sheet: Annotated[Path, typer.Argument(metavar="SHEET.csv", help="The sheet that people filled in.")],
    target: AlignmentTarget = None,
    as_json: AsJson = False,
) -> None:
    """Tells how many ratings people find reasonable, and whether the others are too generous.

    For example:

        dramaturg ratings review sheet.csv
    """
    try:
        rows = list(csv.DictReader(io.StringIO(sheet.read_text(encoding="utf-8-sig"), newline="")))
        found = read_checked(rows)
    except OSError as error:
        fail(f"{sheet}: {error.strerror or error}")
    except (ValueError, csv.Error) as error:
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
        f"{share['value']:.2f} ({share['lower']:.2f} to {share['upper']:.2f}); {found.unchecked} not checked"
    )
    echo(f"of the others {found.too_high} are too high and {found.too_low} too low")


def draw(rows: Iterator[Mapping[str, str]], count: int, seed: int) -> Sequence[Mapping[str, str]]:
    """Draws so many of the rows, each equally likely, in one pass (Vitter 1985, algorithm R)."""
    chance = random.Random(seed)  # noqa: S311 - which ratings are checked is no secret
    kept: list[Mapping[str, str]] = []
    for index, row in enumerate(rows):
        if index < count:
            kept.append(row)
        elif (place := chance.randrange(index + 1)) < count:
            kept[place] = row
    return kept


def read_checked(rows: Sequence[Mapping[str, Any]]) -> Checked:
    """Counts what people wrote.

    Raises:
        ValueError: A cell holds something else, or nothing was checked; the message names the row.
    """
    if not any("reasonable" in row for row in rows):
        raise ValueError("has no column 'reasonable': is it a sheet of ratings?")
    counts = {"yes": 0, "no": 0, "": 0, "high": 0, "low": 0}
    for number, row in enumerate(rows, start=1):
        answer = (row.get("reasonable") or "").strip().casefold()
        if answer and answer not in _YES | _NO:
            raise ValueError(f"row {number}: reasonable is {answer!r}, neither yes nor no")
        name = "yes" if answer in _YES else "no" if answer in _NO else ""
        counts[name] += 1
        own = (row.get("own_rating") or "").strip()
        if name == "no" and own:
            try:
                difference = float(row["rating"]) - float(own)
            except ValueError as error:
                raise ValueError(f"row {number}: own_rating is {own!r}, no number") from error
            counts["high"] += difference > 0
            counts["low"] += difference < 0
    if not counts["yes"] + counts["no"]:
        raise ValueError("nothing was checked: the column reasonable is empty")
    return Checked(counts["yes"], counts["no"], counts[""], counts["high"], counts["low"])


async def _share(target: str | None, found: Checked) -> Mapping[str, float | None]:
    """The share of reasonable ratings with Wilson's interval."""
    items = [LabelledItem(gold="reasonable", predicted="reasonable")] * found.reasonable
    items += [LabelledItem(gold="reasonable", predicted="unreasonable")] * found.unreasonable
    async with service_channel("alignment", target) as channel:
        response = await AlignmentServiceStub(channel).MeasureAccuracy(MeasureAccuracyRequest(items=items))
    return estimate(response.groups[0].accuracy)


def _rated(results: Path) -> Iterator[Mapping[str, str]]:
    with results.open(encoding="utf-8") as lines:
        for line in lines:
            result = ParseDict(json.loads(line), DialogueResult())
            replies = {reply.model: reply.text for reply in result.replies}
            for rated in result.ratings:
                if rated.rating.HasField("value"):
                    yield {
                        "script_id": result.script.id,
                        "task": result.script.task.name,
                        "dialogue": _told(result),
                        "model": rated.model,
                        "reply": replies[rated.model],
                        "judge": rated.judge,
                        "rating": f"{rated.rating.value:g}",
                        "rationale": rated.rating.rationale,
                    }


def _told(result: DialogueResult) -> str:
    speakers = {dialogue_pb2.SPEAKER_USER: "USER", dialogue_pb2.SPEAKER_SIMULATOR: "SIMULATOR"}
    return "\n\n".join(f"{speakers[one.speaker]}: {one.text}" for one in result.script.utterances)
