"""The sheet on which people check ratings, and their answers (SimulBench, section 4.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.json_format import ParseDict, ParseError

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueResult
from dramaturg.datasets.json_lines import LineError, json_objects

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
    for number, row in enumerate(rows, start=1):
        answer = (row.get("reasonable") or "").strip().casefold()
        if answer and answer not in _YES | _NO:
            problems.append(f"row {number}: reasonable is {answer!r}, neither yes nor no")
        name = "yes" if answer in _YES else "no" if answer in _NO else ""
        counts[name] += 1
        own = (row.get("own_rating") or "").strip()
        if name == "no" and own:
            try:
                difference = float(row["rating"]) - float(own)
            except ValueError:
                problems.append(f"row {number}: own_rating is {own!r}, no number")
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
