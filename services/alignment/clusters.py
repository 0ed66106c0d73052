"""Numbers for the groups and clusters that items are in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from services.alignment.bootstrap import Index


def group_codes(values: Iterable[str]) -> tuple[list[str], Index]:
    """The groups by name, and each item's place among them; -1 for an item in none."""
    named = list(values)
    groups = sorted(set(named) - {""})
    places = {name: place for place, name in enumerate(groups)} | {"": -1}
    return groups, np.array([places[value] for value in named], np.intp)


def cluster_codes(values: Sequence[str]) -> Index:
    """A number for each item, by name the same for items of one cluster; one without is its own."""
    places = {value: place for place, value in enumerate(sorted(set(values) - {""}))}
    alone = iter(range(len(places), len(places) + len(values)))
    return np.array([places[value] if value else next(alone) for value in values], np.intp)
