"""Labels that people gave: one label for each item and criterion, and their join to judgements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_LISTED = 5


class AmbiguousLabelsError(ValueError):
    """A label names several items. The message names the label and the items."""


@dataclass(frozen=True)
class HumanLabels:
    """People's labels."""

    labels: Mapping[tuple[str, str], bool]
    """By item and criterion: whether people pass it. Undecided items have none."""
    undecided: int
    """The number of items without a majority."""
    left_out: list[str]
    """The parts of the file that are not used, as text."""


class LabelJoin:
    """Finds the labels of judgements. An item is SAMPLE/SUBJECT, else SUBJECT, else SAMPLE.

    Args:
        people: The labels.
    """

    def __init__(self, people: HumanLabels) -> None:
        self._labels = people.labels
        self._items = {item for item, _ in people.labels}
        self._unused = set(people.labels)
        self._places: dict[str, tuple[str, str, str]] = {}
        self._ambiguous: dict[str, list[tuple[str, str, str]]] = {}

    def of(self, row: str, sample: str, subject: str, aspect: str) -> bool | None:
        """The label of a judgement. None: there is none.

        Args:
            row: Identifies the row, e.g. by its number. A label of items in several rows is ambiguous.
            sample: The id of the sample.
            subject: The judged part of the sample, e.g. the candidate.
            aspect: The criterion.
        """
        for item in _names(sample, subject):
            for criterion in (aspect, ""):
                if (item, criterion) in self._labels:
                    self._note(item, (row, sample, subject))
                    self._unused.discard((item, criterion))
                    return self._labels[item, criterion]
        return None

    @property
    def unused(self) -> Sequence[tuple[str, str]]:
        """The items and criteria whose labels were asked for by no judgement, in order."""
        return sorted(self._unused)

    def note(self, row: str, sample: str, subject: str) -> None:
        """Notes an item whose judgements are not yet known, for ``check``."""
        item = next((one for one in _names(sample, subject) if one in self._items), None)
        if item is not None:
            self._note(item, (row, sample, subject))

    def check(self) -> None:
        """Checks that every label that was found is of one item.

        Raises:
            AmbiguousLabelsError: A label is of several items.
        """
        for label, places in self._ambiguous.items():
            listed = [f"{_names(sample, subject)[0]!r} of row {row}" for row, sample, subject in places]
            rest = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
            others = f" ({len(self._ambiguous)} labels are ambiguous)" if len(self._ambiguous) > 1 else ""
            raise AmbiguousLabelsError(
                f"the label of {label!r} is of several items: {', '.join(listed[:_LISTED])}{rest}{others}; "
                "each row needs a task id of its own, and a label the item TASK/CANDIDATE"
            )

    def _note(self, item: str, place: tuple[str, str, str]) -> None:
        first = self._places.setdefault(item, place)
        if place != first:
            places = self._ambiguous.setdefault(item, [first])
            if place not in places:
                places.append(place)


def _names(sample: str, subject: str) -> tuple[str, ...]:
    return f"{sample}/{subject}", subject, sample
