"""The review sheet of scenarios."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dramaturg.api.evaluation.v1.scenarios_pb2 import ScenariosResult, WrittenScenario
from dramaturg.api.generation.v1 import authoring_decisions_pb2
from dramaturg.authoring import sheets
from dramaturg.results.scenarios import TARGETS

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


def write_sheet(folder: Path, rows: Sequence[Mapping[str, str]]) -> tuple[Path, Path]:
    """Writes ``review.csv`` and ``review.jsonl``; files that are there are replaced.

    Raises:
        OSError: The folder cannot be written to.
    """
    return sheets.write_sheet(folder, COLUMNS, rows)


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
