"""Joins the commands that train an edge model and predict with it to ``dramaturg graphs``.

They come with the services, which the client wheel does not have; there they say so.
"""

from __future__ import annotations

from importlib.metadata import entry_points

import typer

from dramaturg.cli.platform import fail

COMMANDS = "dramaturg.commands.graphs"
"""The entry points of graph commands that need the services."""

_ABSENT = (
    "Training and predicting come with the services: install them from a clone of the repository "
    "(pip install -e '.[platform,embeddings]') or use an image."
)


def add_training(graphs: typer.Typer) -> None:
    """Adds the commands to a group; where the services are absent, commands of the same names that say so."""
    for entry in entry_points(group=COMMANDS):
        try:
            commands = entry.load()
        except ModuleNotFoundError as error:
            if error.name != entry.module.split(".")[0]:
                raise
            continue
        graphs.add_typer(commands)
        return
    for name in ("train", "predict"):
        graphs.command(
            name,
            help="Not available: the services are not installed.",
            # Whatever it is called with, the answer is the same.
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )(_absent)


def _absent() -> None:
    fail(_ABSENT)
