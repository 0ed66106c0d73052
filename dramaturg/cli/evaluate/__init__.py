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
            "Puts decisions to models and scores what they choose (Choice-75).",
        ),
        LazyCommand(
            "dialogues",
            "dramaturg.cli.evaluate.dialogues:dialogues",
            "Lets models continue test scripts, rates the replies from 1 to 10 and compares them "
            "(SimulBench).",
        ),
        LazyCommand(
            "pairs",
            "dramaturg.cli.evaluate.pairs:pairs",
            "Compares pairs of texts as readers would (DRPE), beside simpler measures and against people.",
        ),
        LazyCommand(
            "graphs",
            "dramaturg.cli.evaluate.graphs:graphs",
            "Lets models order or write script graphs and measures them (proScript).",
        ),
    )


app = typer.Typer(cls=_Commands, no_args_is_help=True, help="Evaluates what language models wrote.")
app.callback()(lambda: None)
