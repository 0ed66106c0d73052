"""A reproduced paper: its tables, its figures, and the parts that cannot be reproduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from dramaturg.plots.figures import Figure
from dramaturg.tables.model import Table

if TYPE_CHECKING:
    from dramaturg_research.reproduction.session import Session


class PaperName(StrEnum):
    """The papers, by the name of their module here."""

    ABSEVAL = "abseval"
    CHOICE75 = "choice75"
    DRPE = "drpe"
    PROSCRIPT = "proscript"
    SIMULBENCH = "simulbench"


class DataError(Exception):
    """The folder of released data lacks a file, or a file has another format; the message says which."""


class Omission(NamedTuple):
    """A part of the paper that is not reproduced."""

    part: str
    """The table, the figure or the number."""
    reason: str
    """The reason, as a sentence."""


@dataclass
class Reproduction:
    """The content of the folder of a paper."""

    title: str
    """The paper, with its authors and year."""
    data: str
    """The data that was read, as a sentence with counts."""
    tables: list[Table] = field(default_factory=list)
    """The tables, in the order of the paper."""
    figures: list[Figure] = field(default_factory=list)
    """The figures, in the order of the paper."""
    omissions: list[Omission] = field(default_factory=list)
    """The parts that are not reproduced."""


class Paper(Protocol):
    """The module of a paper."""

    ROLES: Sequence[str]
    """The roles that a gateway must serve."""

    async def reproduce(self, session: Session, folder: Path) -> Reproduction:
        """Reproduces the paper.

        Args:
            session: The models and the gateway.
            folder: The folder of released data.

        Raises:
            DataError: The data cannot be read.
            ServiceError: The gateway failed.
        """


def find_paper(name: PaperName) -> Paper:
    """The module of a paper."""
    return cast("Paper", import_module(f"dramaturg_research.reproduction.{name}"))


def data_folder(folder: Path, name: str, marker: str) -> Path:
    """The folder that has a paper's data: the named folder, or the one below it of the paper's name.

    Args:
        folder: The folder that the user named.
        name: The name of the paper.
        marker: A file or folder that the data has.

    Raises:
        DataError: Neither has the marker.
    """
    for place in (folder, folder / name):
        if (place / marker).exists():
            return place
    raise DataError(f"{folder}: has neither {marker} nor {name}/{marker}")
