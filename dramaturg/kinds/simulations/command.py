"""``dramaturg research simulate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from google.protobuf.json_format import ParseDict

from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    EvaluateDialoguesRequest,
    SimulatedDialogue,
    SimulateDialogueRequest,
)
from dramaturg.cli.evaluation import Evaluation, Job, JudgedRows, default_folder, evaluate_file
from dramaturg.cli.judge_selection import models_of_roles, parse_judges, set_judges
from dramaturg.cli.lazy_group import MORE
from dramaturg.cli.options import GroupBy, Timeout, takes_groups
from dramaturg.cli.output_files import write_messages
from dramaturg.cli.platform import fail
from dramaturg.cli.summaries import summary_options
from dramaturg.datasets import Row
from dramaturg.datasets.json_lines import json_objects
from dramaturg.judge.roles import AUTHOR
from dramaturg.kinds.dialogues import KIND_NAMES, SUBSET_NAMES
from dramaturg.results.files import RESULTS

SCRIPTS = "scripts.jsonl"
"""The file of the test scripts: rows of the kind "dialogues", in the order of the dialogues."""
USER_TAG = "user"
"""The tag with the model that plays the user, where there are several."""
PERSONA_TAG = "persona"
"""The tag with the number of a dialogue's persona, from 1."""
app = typer.Typer()


@dataclass(frozen=True)
class Simulation(Job):
    """The shared options, with a longer timeout for a dialogue."""

    timeout: Timeout = 1800.0


@dataclass(frozen=True, kw_only=True)
class SimulationOptions:
    """The options of simulations; absent ones keep the row's value."""

    simulator: Annotated[str, typer.Option(metavar="MODEL", help="The model that simulates.")] = ""
    """The model that simulates."""
    user: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="The model that plays the user; repeatable: by turns of a task's dialogues.",
        ),
    ] = None
    """The models that play the user, by turns."""
    turns: Annotated[
        int | None,
        typer.Option(min=1, max=50, help="Maximum number of turns. Default: that of the row, else 4."),
    ] = None
    """The maximum number of turns."""

    def apply(self, request: SimulateDialogueRequest) -> None:
        """Sets them in a request."""
        request.simulator_model = self.simulator or request.simulator_model
        request.max_turn_count = self.turns or request.max_turn_count


@app.command("simulate")
@takes_groups
def simulate(
    own: SimulationOptions,
    job: Simulation,
    dialogues: Annotated[int, typer.Option(min=1, max=1000, help="Dialogues of each task.")] = 3,
    personas: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Persons whom the user agent plays, one a line, by turns of a task's dialogues.",
            rich_help_panel=MORE,
        ),
    ] = None,
    judge: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=NAME", help="The service of a role: author or challenge-judge."),
    ] = None,
    judge_model: Annotated[
        list[str] | None, typer.Option(metavar="ROLE=MODEL", help="The model of a role's judge.")
    ] = None,
    group_by: GroupBy = None,
) -> None:
    """Simulates dialogues of a user agent and a simulator and extracts test scripts (SimulBench).

    Each row is a SimulateDialogueRequest (docs/reference/datasets.md), as "research convert simulbench
    --tasks" and "dramaturg research tasks write" write them. DIR/results.jsonl gets one SimulatedDialogue a
    line, DIR/scripts.jsonl the test scripts as rows of the kind dialogues, and DIR/errors.jsonl the
    dialogues that failed.

    Exit codes: 0 all dialogues have a result, 1 some failed or no challenging turn was judged, 2 wrong usage
    or rows, 4 the challenging turn of more than a tenth is not known, 130 interrupted.

    For example:

        dramaturg research simulate tasks.jsonl --simulator gpt-3.5-turbo --user gpt-3.5-turbo --out sim

        dramaturg eval sim/scripts.jsonl --model my-model
    """
    try:
        judges = parse_judges(judge or ())
        models = models_of_roles("--judge-model", judge_model or ())
    except ValueError as error:
        fail(str(error))

    people: Sequence[str] = ()
    if personas is not None:
        try:
            lines = personas.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            fail(f"{personas}: is not UTF-8")
        people = [line.strip() for line in lines if line.strip()]
        if not people:
            fail(f"{personas}: has no persona")

    def apply(request: SimulateDialogueRequest) -> None:
        set_judges(request.judges, judges, models)
        own.apply(request)

    folder = job.out or default_folder()
    evaluate_file(
        replace(job, out=folder),
        Evaluation(
            request=SimulateDialogueRequest,
            roles=("author", "challenge-judge"),
            apply=apply,
            options=summary_options(group_by),
            conclude=lambda: _write_scripts(folder),
            spread=lambda row: _number(row, dialogues, own.user or (), people),
            spread_count=dialogues,
        ),
    )


def _number(
    row: Row[SimulateDialogueRequest], count: int, users: Sequence[str], people: Sequence[str]
) -> Sequence[SimulateDialogueRequest]:
    """As many copies of a row as its task has dialogues, each with its number, user model and persona."""
    copies = []
    for index in range(count):
        copy = SimulateDialogueRequest()
        copy.CopyFrom(row.request)
        copy.dialogue_index += index
        if users:
            copy.user_model = users[copy.dialogue_index % len(users)]
        if len(users) > 1:
            copy.tags[USER_TAG] = copy.user_model
        if people:
            # Each model plays each person before one comes again.
            place = copy.dialogue_index // max(1, len(users)) % len(people)
            copy.persona = people[place]
            copy.tags[PERSONA_TAG] = str(place + 1)
        copies.append(copy)
    return copies


def _write_scripts(folder: Path) -> None:
    """Makes rows of the scripts of every result, one result in memory at a time."""

    def rows() -> Any:
        for _, record in json_objects(folder / RESULTS):
            dialogue = ParseDict(record, SimulatedDialogue())
            for script in dialogue.scripts:
                tags = {**dialogue.tags, "subset": SUBSET_NAMES[script.subset]}
                if kind := KIND_NAMES.get(script.task.kind):
                    tags["kind"] = kind
                yield EvaluateDialoguesRequest(script=script, tags=tags)

    write_messages(folder / SCRIPTS, rows())


CHALLENGE_ROWS = JudgedRows(
    SimulateDialogueRequest,
    (AUTHOR.name,),
)
"""The rows of judges of challenging turns."""
