"""``dramaturg research scenarios``: writes scenarios and reads their review (Choice-75)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.scenarios_pb2 import ScenariosResult, WriteScenariosRequest
from dramaturg.api.generation.v1.authoring_decisions_pb2 import ScenarioDemonstration, ScenarioForm
from dramaturg.authoring import sheet_rows, write_scenario_sheet
from dramaturg.cli.evaluation import Evaluation, Job, default_folder, evaluate_file
from dramaturg.cli.input_files import checked_rows
from dramaturg.cli.judge_selection import parse_judges, set_judges
from dramaturg.cli.lazy_group import MORE, NO_RESEARCH, RESEARCH, ExternalCommand, LazyGroup
from dramaturg.cli.options import AsJson, GroupBy, ModelsUnderTest, takes_groups
from dramaturg.cli.platform import fail
from dramaturg.cli.summaries import summary_options
from dramaturg.cli.terminal import echo, tell_next
from dramaturg.datasets import Row
from dramaturg.datasets.json_lines import LineError
from dramaturg.kinds.scenarios import SCENARIOS
from dramaturg.results.files import read_results

KeepDuplicates = Annotated[
    bool, typer.Option("--keep-duplicates", help="Keep near-duplicates on the sheet, marked.")
]


def sheet(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS",
            exists=True,
            help="A folder of scenarios write, its results.jsonl, or the exported samples of a run.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the sheet.")],
    keep_duplicates: KeepDuplicates = False,
    as_json: AsJson = False,
) -> None:
    """Writes the review sheet of scenarios, e.g. of a run.

    Exit codes: 0 the sheet is written, 2 wrong usage or results.

    For example:

        dramaturg runs results RUN --format samples-jsonl --out scenarios.jsonl

        dramaturg research scenarios sheet scenarios.jsonl --out review
    """
    table, lines, count = write_review_sheet(results, out, duplicates_kept=keep_duplicates)
    if as_json:
        typer.echo(json.dumps({"rows": count, "csv": str(table), "jsonl": str(lines)}, ensure_ascii=False))
    else:
        echo(f"{count} scenarios to {table} and {lines}")
    tell_next("research", "scenarios", "review", table, "--out", "rows.jsonl")


def write_review_sheet(results: Path, out: Path, *, duplicates_kept: bool) -> tuple[Path, Path, int]:
    """Writes the sheet; returns its two files and the number of rows.

    Raises:
        typer.Exit: 2 with a message: the results cannot be read, or the sheet cannot be written.
    """
    try:
        rows = [
            row
            for number, sample in enumerate(read_results(results), start=1)
            if _has_scenarios(sample, results)
            for row in sheet_rows(_numbered(sample.scenarios, number), duplicates_kept=duplicates_kept)
        ]
        return *write_scenario_sheet(out, rows), len(rows)
    except LineError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror or error}")


def _has_scenarios(sample: RunSample, results: Path) -> bool:
    """Whether a sample has a result, which is one of scenarios."""
    kind = sample.WhichOneof("result")
    if kind not in {None, SCENARIOS.name}:
        fail(f"{results}: has results of {kind}, not of scenarios")
    return kind is not None


def _numbered(result: ScenariosResult, number: int) -> ScenariosResult:
    """The result of a brief; one without an id has its number."""
    result.id = result.id or str(number)
    return result


class FormName(StrEnum):
    """The form of a scenario (``generation.v1.ScenarioForm``)."""

    VERB_PHRASE = "verb-phrase"
    HARD_VERB_PHRASE = "hard-verb-phrase"
    USER_PROFILE = "user-profile"


@dataclass(frozen=True, kw_only=True)
class ScenarioOptions:
    """The options of scenarios; absent ones keep the row's value."""

    form: Annotated[FormName | None, typer.Option(help="The form. Default: that of the row.")] = None
    """The form of the scenarios."""
    count: Annotated[
        int,
        typer.Option(
            min=0, max=100, help="Scenarios of each model for each option. 0: that of the row, else 4."
        ),
    ] = 0
    """The number of scenarios."""
    near: Annotated[
        float | None,
        typer.Option(
            min=-1,
            max=1,
            help="Cosine from which scenarios are near-duplicates. Default: that of the row, else 0.9.",
            rich_help_panel=MORE,
        ),
    ] = None
    """The cosine of near-duplicates."""
    demonstrations: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help="Worked examples, shown to the models (ScenarioDemonstration). Default: those of the row.",
        ),
    ] = None
    """The file of worked examples."""

    def request(self) -> WriteScenariosRequest:
        """The options as a request without a brief."""
        request = WriteScenariosRequest(count=self.count, duplicate_threshold=self.near)
        if self.demonstrations is not None:
            with checked_rows(str(self.demonstrations), ScenarioDemonstration) as (rows, _):
                request.demonstrations.extend(row.request for row in rows)
        if self.form is not None:
            request.form = ScenarioForm.Value(f"SCENARIO_FORM_{self.form.value.upper().replace('-', '_')}")
        return request


@takes_groups
def write(
    options: ScenarioOptions,
    job: Job,
    model: ModelsUnderTest = None,
    keep_duplicates: KeepDuplicates = False,
    judge: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=NAME", help="The service of a role: author or embedding."),
    ] = None,
    group_by: GroupBy = None,
) -> None:
    """Writes scenarios for people to review (Choice-75, section 2.4).

    Each row is a WriteScenariosRequest (docs/reference/datasets.md): a brief, which is a decision without a
    scenario. Each model writes --count scenarios for either option. DIR/results.jsonl gets one
    ScenariosResult a brief. DIR/review.csv and DIR/review.jsonl are the same sheet: people accept, edit and
    label scenarios in one of them, and "research scenarios review" reads it. Near-duplicates within a brief
    are not on the sheet; a scenario that names an option is marked in the column leaks_option.

    Exit codes: 0 all briefs have a result, 1 some failed or nothing was written, 2 wrong usage or rows,
    4 fewer than 0.9 of the scenarios were written, 130 interrupted.

    For example:

        dramaturg research scenarios write briefs.jsonl --form hard-verb-phrase --count 6 --model my-model

        dramaturg research scenarios write briefs.jsonl --form hard-verb-phrase --demonstrations shown.jsonl
    """
    try:
        judges = parse_judges(judge or ())
    except ValueError as error:
        fail(str(error))
    own = options.request()
    folder = job.out or default_folder()

    def apply(request: WriteScenariosRequest) -> None:
        if own.demonstrations:
            request.ClearField("demonstrations")
        request.MergeFrom(own)
        set_judges(request.judges, judges, {})
        if model:
            request.models[:] = model

    evaluate_file(
        replace(job, out=folder),
        Evaluation(
            request=WriteScenariosRequest,
            roles=("author", "embedding"),
            apply=apply,
            options=summary_options(group_by),
            conclude=lambda: write_review_sheet(folder, folder, duplicates_kept=keep_duplicates),
            spread=_named,
        ),
    )


def _named(row: Row[WriteScenariosRequest]) -> Sequence[WriteScenariosRequest]:
    """The request of a row; one without an id has the number of its line."""
    request = WriteScenariosRequest()
    request.CopyFrom(row.request)
    request.id = request.id or str(row.line)
    return [request]


__all__ = ["app"]


class _Commands(LazyGroup):
    members = (
        ExternalCommand(
            "review",
            RESEARCH,
            'Converts accepted and edited scenarios into rows of the kind "decisions".',
            NO_RESEARCH,
            entry="scenarios.review",
        ),
    )


app = typer.Typer(
    cls=_Commands, no_args_is_help=True, help="Writes scenarios of decisions and reads their review."
)
app.command("write")(write)
app.command("sheet")(sheet)
