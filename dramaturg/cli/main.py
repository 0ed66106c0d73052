"""``dramaturg``: the command line. Each command's module is imported when the command is run."""

from __future__ import annotations

from typing import Annotated

import typer

from dramaturg.cli.lazy_group import NO_PLATFORM, PLATFORM, ExternalCommand, LazyCommand, LazyGroup

START, EVALUATE, READ, OPERATE, PEOPLE = "Start", "Evaluate", "Read", "Operate", "People"
"""The headings of the help."""


class Commands(LazyGroup):
    """The commands. A test compares the help here with that of the commands."""

    members = (
        ExternalCommand(
            "up", PLATFORM, "Starts every service and the gateway in one process.", NO_PLATFORM, panel=START
        ),
        ExternalCommand("serve", PLATFORM, "Starts services in one process.", NO_PLATFORM, panel=START),
        LazyCommand(
            "init",
            "dramaturg.cli.init",
            "Writes a first evaluation into a folder: texts, a rubric and a configuration.",
            panel=START,
        ),
        LazyCommand(
            "eval",
            "dramaturg.cli.evaluate",
            "Evaluates what language models wrote: any texts by a rubric, or rows of another kind.",
            panel=EVALUATE,
        ),
        LazyCommand(
            "show",
            "dramaturg.cli.show",
            "Prints the tables of results, also by other groups.",
            panel=READ,
        ),
        LazyCommand(
            "report",
            "dramaturg.cli.report",
            "Writes results as one HTML page that opens anywhere, also offline.",
            panel=READ,
        ),
        LazyCommand(
            "compare",
            "dramaturg.cli.compare",
            "Compares runs over the same items with a baseline and decides a gate.",
            panel=READ,
        ),
        LazyCommand(
            "plan",
            "dramaturg.cli.plan",
            "Computes how many samples or labelled items a study needs, from a pilot.",
            panel=READ,
        ),
        LazyCommand(
            "runs",
            "dramaturg.cli.runs.commands",
            "Manages the runs of a gateway: evaluations that go on there.",
            group=True,
            panel=OPERATE,
        ),
        LazyCommand(
            "judges",
            "dramaturg.cli.judges",
            "Lists the judges of a gateway with identity, health and model, registers and checks judges.",
            group=True,
            panel=OPERATE,
        ),
        LazyCommand(
            "providers",
            "dramaturg.cli.providers",
            "Lists the model providers and their models, and checks what works with them.",
            group=True,
            panel=OPERATE,
        ),
        LazyCommand(
            "labels",
            "dramaturg.cli.labels",
            "Has samples of runs labelled by people, and measures how far judges agree with them.",
            group=True,
            panel=PEOPLE,
        ),
        LazyCommand(
            "research",
            "dramaturg.cli.research",
            "Studies of models and judges: papers, tasks, faults, prompts, graphs.",
            group=True,
            panel="Research",
        ),
    )


app = typer.Typer(
    name="dramaturg",
    cls=Commands,
    help="Evaluates what language models write. Exit codes: 0 fine, 1 some samples failed, 2 wrong usage.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        typer.echo(f"dramaturg {metadata.version('dramaturg')}")
        raise typer.Exit


@app.callback()
def dramaturg(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Prints the version."),
    ] = False,
) -> None:
    """Evaluates what language models write."""
    # The option's callback has printed the version.
    del show_version


def main() -> None:
    """Runs the command line."""
    app()
