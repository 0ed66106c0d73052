"""``dramaturg research``: studies of models and judges. Some commands are those of ``dramaturg-research``."""

from __future__ import annotations

import typer

from dramaturg.cli.lazy_group import NO_RESEARCH, RESEARCH, ExternalCommand, LazyCommand, LazyGroup


class _Commands(LazyGroup):
    members = (
        LazyCommand(
            "convert",
            "dramaturg.cli.convert",
            "Converts released formats into rows.",
            group=True,
        ),
        ExternalCommand(
            "reproduce",
            RESEARCH,
            "Reproduces the tables and figures of a paper from its released data.",
            NO_RESEARCH,
            entry="reproduce",
        ),
        ExternalCommand(
            "ablate",
            RESEARCH,
            "Evaluates the same scripts in several variants (ABSEval, Tables 2 and 3, Figures 4 and 7).",
            NO_RESEARCH,
            entry="ablate",
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
            "scripts",
            RESEARCH,
            "Reads reviewed tasks, writes scripts with the models under test, and draws scripts to label.",
            NO_RESEARCH,
            entry="scripts",
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
        LazyCommand(
            "simulate",
            "dramaturg.kinds.simulations.command",
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
        LazyCommand(
            "roles",
            "dramaturg.cli.roles",
            "Generates judging roles for texts and clusters similar ones (DRPE, section 3.1).",
        ),
        LazyCommand(
            "scenarios",
            "dramaturg.kinds.scenarios.command",
            "Writes scenarios of decisions and reads their review.",
            group=True,
        ),
        LazyCommand(
            "graphs",
            "dramaturg.cli.graphs",
            "Checks, draws, scores and compares script graphs.",
            group=True,
        ),
        LazyCommand(
            "prompts",
            "dramaturg.cli.prompts",
            "Measures the prompts of judges with a model, and compares two measurements.",
            group=True,
        ),
    )


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    help="Studies of models and judges: papers, tasks, faults, prompts, graphs.",
)
app.callback()(lambda: None)
