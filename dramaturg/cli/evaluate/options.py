"""The options of ``dramaturg eval`` beside those of every command that evaluates rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion
from dramaturg.cli.lazy_group import MORE
from dramaturg.cli.options import GroupBy, JudgeModels, Judges, ModelsUnderTest
from dramaturg.cli.platform import fail
from dramaturg.formats.rubric import BUILTIN, RubricError, read_rubric, ready_rubrics

Criteria = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help=f"The rubric: a TOML file, or {BUILTIN}NAME ({', '.join(ready_rubrics())}).",
    ),
]


@dataclass(frozen=True, kw_only=True)
class KindOptions:
    """Options of one kind of rows or of several; absent ones keep the row's value."""

    criteria: Criteria = None
    """The rubric."""
    model: ModelsUnderTest = None
    """The models under test."""
    judge: Judges = None
    """The judges of roles, as ROLE=NAME."""
    judge_model: JudgeModels = None
    """Their models, as [ROLE=]MODEL."""
    group_by: GroupBy = None
    """The tags of further tables."""
    offline: Annotated[
        bool,
        typer.Option(
            "--offline", help="Call no model: only rules, or text metrics of pairs.", rich_help_panel=MORE
        ),
    ] = False
    """Whether no model is called."""
    pair: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL,MODEL",
            help="Dialogues: two models to compare; repeatable. all: every pair.",
            rich_help_panel=MORE,
        ),
    ] = None
    """The models whose replies are compared."""
    sweep: Annotated[
        str,
        typer.Option(
            metavar="K,K,...",
            help="Pairs: the number of subjective roles, or several numbers.",
            rich_help_panel=MORE,
        ),
    ] = ""
    """The numbers of subjective roles."""
    shuffle: Annotated[
        int | None,
        typer.Option(
            metavar="SEED",
            min=0,
            help="Pairs: the seed of the presentation order. Default: the order of the row.",
            rich_help_panel=MORE,
        ),
    ] = None
    """The seed of the presentation order of pairs."""

    def check(self, kind: str, used: Collection[str]) -> None:
        """Refuses options that a kind does not have.

        Raises:
            typer.Exit: 2 with a message.
        """
        for field in fields(self):
            if field.name not in used and getattr(self, field.name) not in (None, False, ""):
                option = f"--{field.name.replace('_', '-')}"
                fail(f"{option}: rows of the kind {kind} have no such option")


def rubric_of(source: str | None) -> Sequence[RubricCriterion]:
    """The criteria of a file, or of a ready rubric; none without a source.

    Raises:
        typer.Exit: 2 with a message where the source is no rubric.
    """
    if source is None:
        return ()
    try:
        return read_rubric(source)
    except RubricError as error:
        fail(f"{source}: {error}")
    except OSError as error:
        fail(f"{source}: {error.strerror or error}")
