"""``dramaturg evaluate``: one command for each evaluation."""

from __future__ import annotations

import typer

from dramaturg.cli.lazy_group import LazyCommand, LazyGroup

__all__ = ["app"]


class _Commands(LazyGroup):
    members = (
        LazyCommand(
            "scripts",
            "dramaturg.cli.evaluate.scripts:scripts",
            "Evaluates scripts (ABSEval): seven verdicts a candidate.",
        ),
        LazyCommand(
            "decisions",
            "dramaturg.cli.evaluate.decisions:decisions",
            "Evaluates decisions: models choose between two options (Choice-75).",
        ),
        LazyCommand(
            "dialogues",
            "dramaturg.cli.evaluate.dialogues:dialogues",
            "Evaluates dialogues: replies of models are rated from 1 to 10 and compared (SimulBench).",
        ),
        LazyCommand(
            "pairs",
            "dramaturg.cli.evaluate.pairs:pairs",
            "Evaluates pairs of texts with role-playing judges, baselines and human labels (DRPE).",
        ),
        LazyCommand(
            "graphs",
            "dramaturg.cli.evaluate.graphs:graphs",
            "Evaluates script graphs that models predict or write (proScript).",
        ),
    )


app = typer.Typer(cls=_Commands, no_args_is_help=True, help="Evaluates what language models wrote.")
app.callback()(lambda: None)
