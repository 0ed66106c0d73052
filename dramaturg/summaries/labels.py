"""Labels that people gave: one label for each item and criterion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class HumanLabels:
    """People's labels."""

    labels: Mapping[tuple[str, str], bool]
    """By item and criterion: whether people pass it. Undecided ones are not among them."""
    undecided: int
    """How many items people are undecided on."""
    left_out: list[str]
    """What of the file was not used, in words."""

    def of(self, sample: str, subject: str, aspect: str) -> bool | None:
        """The label of an item: SAMPLE/SUBJECT, else SUBJECT, else SAMPLE."""
        for item in (f"{sample}/{subject}", subject, sample):
            for criterion in (aspect, ""):
                if (item, criterion) in self.labels:
                    return self.labels[item, criterion]
        return None
