"""``research convert``: released formats into rows of an evaluation, one command for each."""

from __future__ import annotations

import typer

from dramaturg.cli.lazy_group import NO_RESEARCH, RESEARCH, ExternalCommand, LazyGroup


def _released(name: str, help: str) -> ExternalCommand:  # noqa: A002
    return ExternalCommand(name, RESEARCH, help, NO_RESEARCH, entry=f"convert.{name}")


class _Commands(LazyGroup):
    members = (
        _released("coscript", "Converts the released CoScript format (JSON array or JSON Lines)."),
        _released("choice75", 'Converts the released format of Choice-75 into rows of the kind "decisions".'),
        _released("simulbench", "Converts the released format of SimulBench."),
        _released(
            "goyal",
            "Converts the human study of Goyal et al. 2022 into pairs of texts, as DRPE does (section 4.1).",
        ),
        _released("proscript", 'Converts the released format of proScript into rows of the kind "graphs".'),
    )


app = typer.Typer(cls=_Commands, no_args_is_help=True, help="Converts released formats into rows.")
app.callback()(lambda: None)
