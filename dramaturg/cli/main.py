"""``dramaturg``: puts the command groups together."""

from __future__ import annotations

import importlib.metadata

import typer

from dramaturg.cli import (
    ablate,
    align,
    conformance,
    convert,
    evaluate,
    graphs,
    judges,
    perturb,
    report,
    roles,
    runs,
    scenarios,
    scripts,
    tasks,
)
from dramaturg.cli.compare import command as comparing
from dramaturg.cli.dialogues import checking, simulating
from dramaturg.cli.help import Commands
from dramaturg.cli.platform import platform_commands

app = typer.Typer(
    name="dramaturg",
    cls=Commands,
    help="Evaluates what language models write. Exit codes: 0 fine, 1 some samples failed, 2 wrong usage.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(evaluate.app, name="evaluate")
app.add_typer(graphs.app, name="graphs")
app.add_typer(align.app, name="align")
app.add_typer(comparing.app)
app.add_typer(runs.app, name="runs")
app.add_typer(judges.app)
app.add_typer(conformance.app)
app.add_typer(convert.app, name="convert")
app.add_typer(report.app)
app.add_typer(roles.app)
app.add_typer(scenarios.app, name="scenarios")
app.add_typer(simulating.app)
app.add_typer(checking.app, name="ratings")
app.add_typer(tasks.app, name="tasks")
app.add_typer(perturb.app, name="perturb")
app.add_typer(ablate.app)
app.add_typer(scripts.app, name="scripts")
app.add_typer(platform_commands())


@app.command("version")
def version() -> None:
    """Prints the version."""
    typer.echo(f"dramaturg {importlib.metadata.version('dramaturg')}")


def main() -> None:
    """Runs the command line."""
    app()


if __name__ == "__main__":
    main()
