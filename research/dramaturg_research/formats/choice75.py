"""The released format of Choice-75 (Hou et al. 2023): a JSON file a script, a folder a format and split.

A file has "goal" (the overall goal) and "branching_info" with "branching_step" (the paper's goal),
"option 1", "option 2" and "freeform_ra": rows of scenario, right choice (0 either, 1, 2) and level ("na" for
either).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from dramaturg.api.common.v1 import decision_pb2
from dramaturg.api.common.v1.decision_pb2 import Choice, Decision
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.api.generation.v1.authoring_decisions_pb2 import DecisionDemonstration
from dramaturg.datasets.json_lines import LineError, json_document
from dramaturg.kinds.decisions import SOURCE, SOURCE_TAG
from dramaturg.service.validation import violations

FORMATS = ("verb_phrase_manual", "verb_phrase_machine", "user_profile")
"""The forms of a scenario, as the folders are named (Table 1)."""
TRAIN, DEV, ALL = "train", "dev", "all"
"""The splits: dev is scored, train provides demonstrations."""
LEVELS = ("easy", "medium", "hard", "either")
"""The levels of difficulty (section 2.2); "either" where no option is better."""

_CHOICES = (decision_pb2.CHOICE_EITHER, decision_pb2.CHOICE_OPTION_1, decision_pb2.CHOICE_OPTION_2)
_LEVELS = {"easy": "easy", "medium": "medium", "hard": "hard", "na": "either"}


class Note(NamedTuple):
    """A note on a file or a row."""

    place: str
    """The file's path below the folder, and the row from 0, such as "user_profile/dev/82.json, row 3"."""
    text: str
    """The note."""


@dataclass
class Reading:
    """The result of a conversion."""

    requests: list[EvaluateDecisionsRequest] = field(default_factory=list)
    """One for each scenario, by format, split, file and row; tagged "source", "format", "split", "level"."""
    doubtful: list[Note] = field(default_factory=list)
    """Contradictory rows, which are kept as labelled."""
    skipped: list[Note] = field(default_factory=list)
    """Invalid files and rows."""


def read_folder(folder: Path) -> Reading:
    """Reads every file below ``<format>/<split>/``.

    Raises:
        OSError: The folder or a file cannot be read.
        ValueError: None of the folders is there.
    """
    reading = Reading()
    places = [(name, split, folder / name / split) for name in FORMATS for split in (TRAIN, DEV)]
    found = [place for place in places if place[2].is_dir()]
    if not found:
        raise ValueError(f"has none of the folders {', '.join(f'{name}/{TRAIN}' for name in FORMATS)}")
    for name, split, place in found:
        for file in sorted(place.glob("*.json"), key=lambda file: (len(file.stem), file.stem)):
            path = f"{name}/{split}/{file.name}"
            try:
                _read_script(json_document(file), path, reading)
            except LineError as error:
                reading.skipped.append(Note(path, error.problem))
    return reading


def _read_script(script: Any, path: str, reading: Reading) -> None:
    if problem := next(_problems(script), None):
        reading.skipped.append(Note(path, problem))
        return
    branching = script["branching_info"]
    name, split, _ = path.split("/")
    for index, row in enumerate(branching["freeform_ra"]):
        place = f"{path}, row {index}"
        if not _is_row(row):
            reading.skipped.append(Note(place, "is not [scenario, 0 to 2, easy, medium, hard or na]"))
            continue
        scenario, gold, level = row
        if (level == "na") != (gold == 0):
            reading.doubtful.append(Note(place, f"has the level {level!r} and the right choice {gold}"))
        request = EvaluateDecisionsRequest(
            decision=Decision(
                id=f"{path.removesuffix('.json')}/{index}",
                goal=branching["branching_step"].strip(),
                overall_goal=script["goal"].strip(),
                option_1=branching["option 1"].strip(),
                option_2=branching["option 2"].strip(),
                scenario=scenario.strip(),
            ),
            gold=Choice.ValueType(_CHOICES[gold]),
            tags={SOURCE_TAG: SOURCE, "format": name, "split": split, "level": _LEVELS[level]},
        )
        if broken := violations(request):
            reading.skipped.append(Note(place, f"{broken[0].field}: {broken[0].description}"))
        else:
            reading.requests.append(request)


def _problems(script: Any) -> Iterator[str]:
    if not isinstance(script, dict) or not isinstance(script.get("branching_info"), dict):
        yield "has no object branching_info"
        return
    if not isinstance(script.get("goal"), str):
        yield "goal: must be a string"
    branching = script["branching_info"]
    for name in ("branching_step", "option 1", "option 2"):
        if not isinstance(branching.get(name), str):
            yield f"branching_info.{name}: must be a string"
    if not isinstance(branching.get("freeform_ra"), list):
        yield "branching_info.freeform_ra: must be a list"


def _is_row(row: Any) -> bool:
    match row:
        case [str(), int(gold), str(level)]:
            return not isinstance(gold, bool) and 0 <= gold < len(_CHOICES) and level in _LEVELS
    return False


PAPER_COUNT = 9
"""Three choices at three levels."""

_KINDS = (
    (decision_pb2.CHOICE_OPTION_1, "easy"),
    (decision_pb2.CHOICE_OPTION_2, "medium"),
    (decision_pb2.CHOICE_EITHER, "either"),
    (decision_pb2.CHOICE_OPTION_1, "medium"),
    (decision_pb2.CHOICE_OPTION_2, "hard"),
    (decision_pb2.CHOICE_EITHER, "either"),
    (decision_pb2.CHOICE_OPTION_1, "hard"),
    (decision_pb2.CHOICE_OPTION_2, "easy"),
    (decision_pb2.CHOICE_EITHER, "either"),
)
"""Each choice at each level. A scenario without a better option has no other level than "either"."""


def choose_demonstrations(
    held_out: Sequence[EvaluateDecisionsRequest], count: int, seed: int
) -> list[DecisionDemonstration]:
    """Draws examples of every choice and level as evenly as they are there.

    Args:
        held_out: Solved decisions, tagged "level", none of which is scored.
        count: How many to draw.
        seed: The seed of the draw; equal arguments give equal examples in equal order.

    Returns:
        The examples, in an order drawn too; fewer than ``count`` where there are no more.
    """
    draw = random.Random(seed)  # noqa: S311 - which examples are shown is no secret
    stock: defaultdict[tuple[int, str], list[EvaluateDecisionsRequest]] = defaultdict(list)
    for request in held_out:
        stock[request.gold, request.tags["level"]].append(request)
    for requests in stock.values():
        draw.shuffle(requests)
    chosen: list[EvaluateDecisionsRequest] = []
    for kind in cycle(_KINDS):
        if len(chosen) == count or not any(stock[one] for one in _KINDS):
            break
        if stock[kind]:
            chosen.append(stock[kind].pop())
    draw.shuffle(chosen)
    return [DecisionDemonstration(decision=request.decision, choice=request.gold) for request in chosen]


def select_rows(reading: Reading, split: str, count: int, seed: int) -> list[EvaluateDecisionsRequest]:
    """The rows of a split, with demonstrations from the train part of the row's own format.

    Args:
        reading: What was read.
        split: "train", "dev" or "all".
        count: How many demonstrations each row gets.
        seed: The seed by which they are drawn.
    """
    train = [row for row in reading.requests if row.tags["split"] == TRAIN]
    shown = {
        name: choose_demonstrations([row for row in train if row.tags["format"] == name], count, seed)
        for name in FORMATS
    }
    rows = [row for row in reading.requests if split == ALL or row.tags["split"] == split]
    for row in rows:
        row.demonstrations.extend(shown[row.tags["format"]])
    return rows
