"""``dramaturg``: the command line. Each command's module is imported when the command is run."""

from __future__ import annotations

from typing import Annotated

import typer

from dramaturg.cli.external_commands import NO_PLATFORM, NO_RESEARCH, PLATFORM, RESEARCH, ExternalCommand
from dramaturg.cli.lazy_group import LazyCommand, LazyGroup


class Commands(LazyGroup):
    """The commands. A test compares the help here with that of the commands."""

    members = (
        LazyCommand(
            "eval",
            "dramaturg.cli.evaluate",
            "Evaluates what language models wrote: any texts by a rubric, or one of the kinds below.",
            group=True,
        ),
        LazyCommand(
            "graphs",
            "dramaturg.cli.graphs",
            "Checks, draws, scores and compares script graphs.",
            group=True,
        ),
        LazyCommand(
            "align",
            "dramaturg.cli.align",
            "Measures how far scores and labels agree with people.",
            group=True,
        ),
        LazyCommand(
            "compare",
            "dramaturg.cli.compare.command",
            "Compares runs over the same items with a baseline and decides a gate.",
        ),
        LazyCommand(
            "plan",
            "dramaturg.cli.plan.command",
            "Computes how many samples or labelled items a study needs, from a pilot.",
        ),
        LazyCommand(
            "runs",
            "dramaturg.cli.runs.commands",
            "Creates and manages runs: evaluations of many samples in a gateway. Exit codes: 0 fine, "
            "1 the run failed or was cancelled, or the gateway did not answer, 2 wrong usage or refused, "
            "4 the run ended at its budget, 130 interrupted.",
            group=True,
        ),
        ExternalCommand(
            "reproduce",
            RESEARCH,
            "Reproduces the tables and figures of a paper from its released data.",
            NO_RESEARCH,
            entry="reproduce",
        ),
        LazyCommand(
            "datasets",
            "dramaturg.cli.datasets",
            "Uploads datasets to a gateway for runs, lists and deletes them. Exit codes: 0 fine, 1 the "
            "gateway did not answer, 2 wrong usage or refused.",
            group=True,
        ),
        LazyCommand(
            "labels",
            "dramaturg.cli.labels",
            "Draws samples of runs for people to label, keeps their labels and exports them. Exit codes: "
            "0 fine, 1 the gateway did not answer, 2 wrong usage or refused.",
            group=True,
        ),
        LazyCommand(
            "judges",
            "dramaturg.cli.judges",
            "Lists the judges of a gateway with identity, health and model, and registers judges.",
            group=True,
        ),
        LazyCommand(
            "providers",
            "dramaturg.cli.providers",
            "Lists the model providers and their models, and checks what works with them.",
            group=True,
        ),
        LazyCommand(
            "prompts",
            "dramaturg.cli.prompts",
            "Measures the prompts of judges with a model, and compares two measurements.",
            group=True,
        ),
        LazyCommand(
            "conformance",
            "dramaturg.cli.conformance",
            "Checks a server against its contract. Exit code 1: a requirement is broken.",
        ),
        LazyCommand(
            "convert",
            "dramaturg.cli.convert",
            "Converts released formats and tables into rows.",
            group=True,
        ),
        LazyCommand(
            "summarize",
            "dramaturg.cli.summarize",
            "Prints the tables of results again, also by other groups.",
        ),
        LazyCommand(
            "report",
            "dramaturg.cli.report",
            "Writes results as one HTML page that opens anywhere, also offline.",
        ),
        LazyCommand(
            "plot",
            "dramaturg.cli.plot",
            "Writes the tables and charts of results for papers and slides.",
        ),
        LazyCommand(
            "roles",
            "dramaturg.cli.roles",
            "Generates judging roles for texts and clusters similar ones (DRPE, section 3.1).",
        ),
        LazyCommand(
            "scenarios",
            "dramaturg.cli.scenarios",
            "Writes scenarios of decisions and reads their review.",
            group=True,
        ),
        LazyCommand(
            "simulate",
            "dramaturg.cli.simulate",
            "Simulates dialogues of a user agent and a simulator and extracts test scripts (SimulBench).",
        ),
        ExternalCommand(
            "ratings",
            RESEARCH,
            "Samples ratings for people to check, and reads their answers.",
            NO_RESEARCH,
            entry="ratings",
            group=True,
        ),
        ExternalCommand(
            "tasks",
            RESEARCH,
            "Writes tasks: simulations, and tasks for scripts.",
            NO_RESEARCH,
            entry="tasks",
            group=True,
        ),
        ExternalCommand(
            "perturb",
            RESEARCH,
            "Inserts known faults into scripts and reports which of them judges detect. "
            '"perturb FILE" is short for "perturb write FILE".',
            NO_RESEARCH,
            entry="perturb",
            group=True,
        ),
        ExternalCommand(
            "ablate",
            RESEARCH,
            "Evaluates the same scripts in several variants (ABSEval, Tables 2 and 3, Figures 4 and 7).",
            NO_RESEARCH,
            entry="ablate",
        ),
        ExternalCommand(
            "scripts",
            RESEARCH,
            "Reads reviewed tasks, writes scripts with the models under test, and draws scripts to label.",
            NO_RESEARCH,
            entry="scripts",
            group=True,
        ),
        ExternalCommand("up", PLATFORM, "Starts every service and the gateway in one process.", NO_PLATFORM),
        ExternalCommand("serve", PLATFORM, "Starts services in one process.", NO_PLATFORM),
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
        version()
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


@app.command("version")
def version() -> None:
    """Prints the version."""
    from importlib import metadata

    typer.echo(f"dramaturg {metadata.version('dramaturg')}")


def main() -> None:
    """Runs the command line."""
    app()
