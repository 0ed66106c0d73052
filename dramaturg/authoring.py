"""Written material: review sheets as CSV and JSON Lines, scripts of models under test, near-duplicates."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.evaluation.v1.scenarios_pb2 import ScenariosResult, WrittenScenario
from dramaturg.api.generation.v1 import authoring_decisions_pb2
from dramaturg.datasets.spreadsheet import write_table
from dramaturg.kinds.scenarios import TARGETS

ACCEPTED, EDITED, REJECTED = "accepted", "edited", "rejected"
"""The values of the column "status"."""


def write_sheet(folder: Path, columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> tuple[Path, Path]:
    """Writes ``review.csv`` and ``review.jsonl``; files that are there are replaced.

    Args:
        folder: The folder; made where it is not there.
        columns: The columns, in order.
        rows: The cells of each row by column; a cell that is not there is empty.

    Raises:
        OSError: The folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table, lines = folder / "review.csv", folder / "review.jsonl"
    write_table(table, columns, rows)
    filled = ({name: row.get(name, "") for name in columns} for row in rows)
    lines.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in filled), encoding="utf-8")
    return table, lines


ANNOTATOR = "annotator_"
"""What the columns of annotators begin with; there may be any number of them."""
COLUMNS = (
    "id",
    "format",
    "goal",
    "overall_goal",
    "option_1",
    "option_2",
    "target",
    "base_scenario",
    "scenario",
    "leaks_option",
    "near_duplicate_of",
    "model",
    "status",
    "edited_scenario",
    "gold",
    "level",
    f"{ANNOTATOR}1",
    f"{ANNOTATOR}2",
    f"{ANNOTATOR}3",
)
"""The columns. Those after "model" are for people; docs/research/decisions.md says what goes where."""


def write_scenario_sheet(folder: Path, rows: Sequence[Mapping[str, str]]) -> tuple[Path, Path]:
    """Writes ``review.csv`` and ``review.jsonl``; files that are there are replaced.

    Raises:
        OSError: The folder cannot be written to.
    """
    return write_sheet(folder, COLUMNS, rows)


FORMATS = {
    authoring_decisions_pb2.SCENARIO_FORM_VERB_PHRASE: "verb_phrase_machine",
    authoring_decisions_pb2.SCENARIO_FORM_HARD_VERB_PHRASE: "verb_phrase_machine",
    authoring_decisions_pb2.SCENARIO_FORM_USER_PROFILE: "user_profile",
}
"""The forms of a scenario as the tag "format" names them (Choice-75, Table 1)."""


def sheet_rows(result: ScenariosResult, *, duplicates_kept: bool) -> Iterator[dict[str, str]]:
    """The rows of the written scenarios of a brief, with the columns for people left empty.

    Args:
        result: The scenarios.
        duplicates_kept: Whether near-duplicates have rows, which name the earlier scenario.
    """
    for one in result.scenarios:
        if one.scenario and (duplicates_kept or not one.duplicate_of):
            yield _sheet_row(result, one)


def _sheet_row(result: ScenariosResult, one: WrittenScenario) -> dict[str, str]:
    completions = one.provenance.completions
    return {
        "id": f"{result.id}/{one.id}",
        "format": FORMATS[result.form],
        "goal": result.brief.goal,
        "overall_goal": result.brief.overall_goal,
        "option_1": result.brief.option_1,
        "option_2": result.brief.option_2,
        "target": TARGETS[one.target],
        "base_scenario": one.base_scenario,
        "scenario": one.scenario,
        "leaks_option": "yes" if one.leaks_option else "no",
        "near_duplicate_of": f"{result.id}/{one.duplicate_of}" if one.duplicate_of else "",
        "model": completions[-1].answered_model if completions else one.model,
    }


UNUSABLE_SCRIPTS: Mapping[str, AbstainReason.ValueType] = {
    "refused": verdict_pb2.ABSTAIN_REASON_REFUSED,
    "truncated": verdict_pb2.ABSTAIN_REASON_TRUNCATED,
    "empty": verdict_pb2.ABSTAIN_REASON_EMPTY,
}
"""The failures of ``WriteScriptResponse`` that are answers of the model, as ``Candidate.failure_reason``."""


def repeats(
    texts: Sequence[str], vectors: Sequence[Sequence[float] | None] | None, threshold: float
) -> Sequence[int | None]:
    """For each text the index of the first earlier new text that it repeats.

    Args:
        texts: The texts.
        vectors: A vector of length 1 for each; None for a text of which only words are compared. None: only
            words are compared.
        threshold: The cosine at which vectors repeat each other.
    """
    words = [" ".join(text.casefold().split()) for text in texts]
    found: list[int | None] = []
    new: list[int] = []
    for index, text in enumerate(words):
        same = (
            one
            for one in new
            if words[one] == text
            or (vectors is not None and _are_near(vectors[one], vectors[index], threshold))
        )
        earlier = next(same, None)
        if earlier is None:
            new.append(index)
        found.append(earlier)
    return found


def _are_near(one: Sequence[float] | None, other: Sequence[float] | None, threshold: float) -> bool:
    if one is None or other is None:
        return False
    return sum(first * second for first, second in zip(one, other, strict=True)) >= threshold
