"""Writes the folder of a reproduction."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from google.protobuf.json_format import MessageToJson

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.plots.figures import NO_PLOTS, can_draw, write_figure, write_table
from dramaturg.plots.tables import markdown
from dramaturg.results.quantities import consumption
from dramaturg_research.reproduction.paper import Reproduction
from dramaturg_research.reproduction.session import RunRecord

INDEX = "README.md"
"""The file that shows every table and says what is not reproduced."""
_MODELS = "Models: "
_DETAILS_NOTE = "In parentheses: the 95 % interval, if there is one, and n, the number of items."


def models_of(folder: Path) -> str:
    """The models whose results a folder has, as text. Empty: it has none."""
    try:
        lines = (folder / INDEX).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ""
    return next((line.removeprefix(_MODELS) for line in lines if line.startswith(_MODELS)), "")


def write_folder(
    folder: Path, made: Reproduction, runs: Sequence[RunRecord], models: Sequence[str] = ()
) -> None:
    """Writes tables, figures, the summaries of runs, and an index; files that exist are replaced.

    Args:
        folder: The folder.
        made: The content.
        runs: The runs.
        models: The models under test. Empty: there are none.

    Raises:
        OSError: A file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for table in made.tables:
        if any("(" in cell.text and cell.judged for row in table.rows for cell in row.cells):
            table.notes = [_DETAILS_NOTE, *table.notes]
        write_table(table, folder)
    drawn = can_draw()
    if drawn:
        for figure in made.figures:
            write_figure(figure, folder)
    for record in runs:
        # Names of models are parts of names of runs.
        file = folder / f"summary-{re.sub(r'[^A-Za-z0-9._-]', '_', record.name)}.json"
        file.write_text(MessageToJson(record.summary, indent=2) + "\n", encoding="utf-8")
    (folder / INDEX).write_text("\n".join(_index(made, runs, models, drawn=drawn)) + "\n", encoding="utf-8")


def _index(
    made: Reproduction, runs: Sequence[RunRecord], models: Sequence[str], *, drawn: bool
) -> Iterator[str]:
    yield f"# {made.title}\n"
    yield f"{made.data}\n"
    if models:
        yield f"{_MODELS}{', '.join(models)}\n"
    for record in runs:
        yield f"- {_described(record)}"
    if runs:
        yield ""
    for table in made.tables:
        yield markdown(table)
    if made.figures and not drawn:
        yield f"{NO_PLOTS}\n"
    for figure in made.figures if drawn else ():
        yield f"### {figure.title}\n"
        yield f"![{figure.title}]({figure.name}.svg)\n"
        for note in figure.notes:
            yield f"{note}\n"
    if made.omissions:
        yield "## Not reproduced\n"
        for part, reason in made.omissions:
            yield f"- **{part}.** {reason}"


def _described(record: RunRecord) -> str:
    run, summary = record.run, record.summary
    state = run_pb2.RunState.Name(run.state).removeprefix("RUN_STATE_").lower()
    parts = [f"run `{run.id}` ({record.name}): {state}"]
    if run.state_reason:
        parts.append(run.state_reason)
    parts.append(f"{summary.sample_count} samples, {summary.failed_sample_count} failed")
    abstained = ", ".join(
        f"{count} {reason}" for reason, count in sorted(summary.abstentions_by_reason.items())
    )
    parts.append(f"{summary.judgement_count} judgements, abstained: {abstained or 'none'}")
    if summary.model_failures:
        failed = ", ".join(
            f"{one.model} {one.judgement_count} {one.reason}" for one in summary.model_failures
        )
        parts.append(f"failures of models, which count against them: {failed}")
    if used := consumption(summary.usage).removeprefix(", "):
        parts.append(used)
    if unpriced := summary.usage.unpriced_call_count:
        parts.append(f"the cost of {unpriced:,} calls is not known: the price table lacks their models")
    parts += list(summary.problems)
    return "; ".join(parts)
