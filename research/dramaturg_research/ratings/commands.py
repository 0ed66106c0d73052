"""``research ratings``: ratings for people to check, and what they found (SimulBench, section 4.3)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import grpc
import typer
from google.protobuf.json_format import ParseDict, ParseError

from dramaturg.api.alignment.v1.accuracy_pb2 import LabelledItem, MeasureAccuracyRequest
from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceStub
from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueResult
from dramaturg.cli.local import service_channel
from dramaturg.cli.options import AlignmentTarget, AsJson
from dramaturg.cli.platform import fail, run
from dramaturg.cli.tables import interval, number
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.datasets.json_lines import LineError, json_objects
from dramaturg.datasets.spreadsheet import read_table, write_table
from dramaturg.service.errors import from_rpc_error
from dramaturg.summaries.estimates import estimate

Drawn = TypeVar("Drawn")

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


def draw(rows: Iterable[Drawn], count: int, seed: int) -> list[Drawn]:
    """Draws ``count`` rows with equal probability, in one pass (Vitter 1985, algorithm R)."""
    chance = random.Random(seed)  # noqa: S311 - which rows are drawn is no secret
    kept: list[Drawn] = []
    for index, row in enumerate(rows):
        if index < count:
            kept.append(row)
        elif (place := chance.randrange(index + 1)) < count:
            kept[place] = row
    return kept


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
    """The answers of people."""

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


def read_checked(rows: Sequence[Mapping[str, Any]]) -> Checked:
    """Counts what people wrote.

    Raises:
        ValueError: A cell holds something else, or nothing was checked; the message names all such rows.
    """
    if not any("reasonable" in row for row in rows):
        raise ValueError("has no column 'reasonable': is it a sheet of ratings?")
    counts = {"yes": 0, "no": 0, "": 0, "high": 0, "low": 0}
    problems = []
    for place, row in enumerate(rows, start=1):
        answer = (row.get("reasonable") or "").strip().casefold()
        if answer and answer not in _YES | _NO:
            problems.append(f"row {place}: reasonable is {answer!r}, neither yes nor no")
        name = "yes" if answer in _YES else "no" if answer in _NO else ""
        counts[name] += 1
        own = (row.get("own_rating") or "").strip()
        if name == "no" and own:
            try:
                difference = float(row["rating"]) - float(own)
            except ValueError:
                problems.append(f"row {place}: own_rating is {own!r}, no number")
                continue
            counts["high"] += difference > 0
            counts["low"] += difference < 0
    if problems:
        raise ValueError("; ".join(problems))
    if not counts["yes"] + counts["no"]:
        raise ValueError("nothing was checked: the column reasonable is empty")
    return Checked(counts["yes"], counts["no"], counts[""], counts["high"], counts["low"])


def rated_replies(results: Path) -> Iterator[Mapping[str, str]]:
    """The rows of the sheet, one for each rating in a results file; abstentions are left out.

    Raises:
        LineError: A line is not a result of dialogues.
        OSError: The file cannot be read.
    """
    for line, record in json_objects(results):
        try:
            result = ParseDict(record, DialogueResult())
        except ParseError as error:
            raise LineError(results, line, str(error)) from error
        replies = {reply.model: reply.text for reply in result.replies}
        for rated in result.ratings:
            if rated.rating.HasField("value"):
                yield {
                    "script_id": result.script.id,
                    "task": result.script.task.name,
                    "dialogue": _told(result),
                    "model": rated.model,
                    "reply": replies.get(rated.model, ""),
                    "judge": rated.judge,
                    "rating": f"{rated.rating.value:g}",
                    "rationale": rated.rating.rationale,
                }


def _told(result: DialogueResult) -> str:
    speakers = {dialogue_pb2.SPEAKER_USER: "USER", dialogue_pb2.SPEAKER_SIMULATOR: "SIMULATOR"}
    return "\n\n".join(f"{speakers[one.speaker]}: {one.text}" for one in result.script.utterances)
