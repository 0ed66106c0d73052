"""Judged pairs of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.alignment.bootstrap import Array, Index


@dataclass(frozen=True)
class Pairs:
    """Judged pairs as parallel arrays."""

    systems: Sequence[str]
    prompt: Index
    """The number of each pair's prompt, from 0 without gaps."""
    first: Index
    second: Index
    preference: Array
    """For the first text, from 0 to 1."""
    longer: Array
    """The length of the first text less that of the second, NaN where one is unknown."""
    difficulty: Array
    """The prompt's difficulty, NaN where it is unknown."""
