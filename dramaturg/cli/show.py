"""``dramaturg show``, and the results that a command names: files, or a run of a gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_SUCCEEDED,
    SAMPLE_STATE_FAILED,
    SAMPLE_STATE_SUCCEEDED,
    Run,
)
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions
from dramaturg.cli.options import AsJson, GroupBy, KeepAced, ModelGroups, ResultsTarget
from dramaturg.cli.platform import fail, output, run
from dramaturg.cli.runs.connection import RUN_ID, ask, whole_id
from dramaturg.cli.summaries import as_json, print_failures, show_summary, summarize_results, summary_options
from dramaturg.cli.terminal import tell_next
from dramaturg.client import DEFAULT_TARGET
from dramaturg.results.files import ResultFiles, read_results
from dramaturg.results.run_text import describe_progress, state_name
from dramaturg.run_client import ENDED, RunClient

HELP = "A folder of eval, its results.jsonl, samples-jsonl of a run, or the id of a run"
"""What a command that reads results says of its argument."""
_DONE = (SAMPLE_STATE_SUCCEEDED, SAMPLE_STATE_FAILED)


@dataclass(frozen=True)
class FoundResults:
    """Results in files, or those of a run."""

    name: str
    """The path, or the whole id of the run."""
    target: str | None
    """The gateway. None: one is started for the figures of files."""
    run: Run | None = None
    """The run. None: files."""

    @property
    def arguments(self) -> Sequence[str]:
        """What names them on the command line."""
        return [self.name] if self.run is None else [self.name, "--target", self._gateway]

    @property
    def title(self) -> str:
        """The title of a page. Empty: that of files."""
        return "" if self.run is None else self.run.spec.display_name or f"Run {self.name}"

    @property
    def warning(self) -> str:
        """What the figures of a run that goes on, or has not succeeded, lack. Empty: nothing."""
        if self.run is None or self.run.state == RUN_STATE_SUCCEEDED:
            return ""
        change = "" if self.run.state in ENDED else "; these figures will change"
        progress = describe_progress(self.run.progress, self.run.state)
        return f"The run is {state_name(self.run.state)}: {progress}{change}."

    def summary(self, options: SummaryOptions) -> Summary:
        """The figures.

        Raises:
            typer.Exit: With a message where they cannot be read, or the gateway fails.
        """
        if self.run is None:
            return run(summarize_results(self.target, Path(self.name), options))
        return ask(self._gateway, lambda runs: runs.summary(self.name, options)).summary

    @contextmanager
    def files(self) -> Iterator[Path]:
        """The path of the results. Those of a run are fetched into a folder that exists meanwhile.

        Raises:
            typer.Exit: With a message where the gateway fails.
        """
        if self.run is None:
            yield Path(self.name)
            return
        with TemporaryDirectory() as above:
            folder = Path(above) / self.name
            folder.mkdir()

            async def fetch(runs: RunClient) -> None:
                with ResultFiles(folder) as files:
                    async for sample in runs.samples(self.name, _DONE):
                        files.add(sample, sample.line)

            ask(self._gateway, fetch)
            yield folder

    @property
    def _gateway(self) -> str:
        return self.target or DEFAULT_TARGET


def find_results(given: str, target: str | None) -> FoundResults:
    """Finds results: a file or folder that exists, else a run of the gateway.

    Args:
        given: A path, or the id of a run or its beginning.
        target: The gateway. None: of a run the one of ``dramaturg up``.

    Raises:
        typer.Exit: With a message: 2 where there are none, 1 where the gateway does not answer.
    """
    if Path(given).exists():
        return FoundResults(given, target)
    if not RUN_ID.fullmatch(given):
        fail(f"{given}: is neither a file, nor a folder, nor the id of a run (dramaturg runs list)")
    run_id = whole_id(given, target or DEFAULT_TARGET)
    return FoundResults(run_id, target, ask(target or DEFAULT_TARGET, lambda runs: runs.get(run_id)))


app = typer.Typer()


@app.command("show")
def show(
    results: Annotated[str, typer.Argument(metavar="RESULTS", help=f"{HELP}.")],
    group_by: GroupBy = None,
    model_group: ModelGroups = None,
    keep_aced: KeepAced = False,
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Seed of resampled intervals.")] = 0,
    target: ResultsTarget = None,
    as_json_object: AsJson = False,
) -> None:
    """Prints the tables of results, also by other groups.

    The figures are those of "dramaturg eval" and of the report. A run may still go on. A folder and a run
    also have the samples that failed; an exported run has only those with a result.

    Exit codes: 0 printed, 1 the gateway failed, 2 wrong usage, or there are no results.

    For example:

        dramaturg show out/demo --group-by topic --group-by topic,steps

        dramaturg show RUN --target localhost:50051

        dramaturg show exported.jsonl --json
    """
    found = find_results(results, target)
    options = summary_options(group_by, aced_kept=keep_aced, seed=seed, model_groups=model_group)
    summary = found.summary(options)
    if not summary.sample_count:
        fail(f"{results}: there are no results")
    if as_json_object:
        described = {**as_json(summary), "results": found.name}
        typer.echo(json.dumps(described, ensure_ascii=False))
        return
    console = output()
    show_summary(console, summary)
    if summary.failed_sample_count:
        failed = f"{summary.failed_sample_count} of {summary.sample_count} samples failed"
        console.print(failed, style="red")
    with found.files() as path:
        print_failures(console, read_results(path))
    if found.warning:
        console.print(found.warning, style="yellow")
    tell_next("report", *found.arguments)
