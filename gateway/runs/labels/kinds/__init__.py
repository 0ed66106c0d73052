"""The items of each kind of evaluation, in a module with its name.

A module has ``LABELLED``, a ``LabelledKind``. Runs of a kind without a module have no items.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module

from gateway.runs.labels.drawn import LabelledKind


def kind_names() -> Sequence[str]:
    """The names of the kinds that have items."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def labelled_kind(name: str) -> LabelledKind | None:
    """The items of a kind. None: it has none."""
    if name not in kind_names():
        return None
    found: LabelledKind = import_module(f"{__name__}.{name}").LABELLED
    return found
