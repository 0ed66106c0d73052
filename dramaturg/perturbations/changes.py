"""What was changed in a script: recorded so that either script can be made from the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dramaturg.api.generation.v1.authoring_datasets_pb2 import StepChange


class Placed(NamedTuple):
    """A step of a perturbed script."""

    text: str
    """What it says."""
    origin: int | None = None
    """The index of the original step that it is, from 0. None: it was added."""
    moved: bool = False
    """Whether it left its place among the others."""


@dataclass(frozen=True)
class Change:
    """One step that was removed, added, reworded or moved (``generation.v1.StepChange``)."""

    original_index: int | None
    """Where it stood, from 0. None: it was added."""
    perturbed_index: int | None
    """Where it stands, from 0. None: it was removed."""
    original_text: str = ""
    """What it said."""
    perturbed_text: str = ""
    """What it says."""

    @classmethod
    def read(cls, message: StepChange) -> Change:
        """Reads a message."""
        return cls(
            message.original_index if message.HasField("original_index") else None,
            message.perturbed_index if message.HasField("perturbed_index") else None,
            message.original_text,
            message.perturbed_text,
        )

    def message(self) -> StepChange:
        """The message that says the same."""
        return StepChange(
            original_index=self.original_index,
            perturbed_index=self.perturbed_index,
            original_text=self.original_text,
            perturbed_text=self.perturbed_text,
        )


class MismatchError(ValueError):
    """Changes that do not fit a script."""


def untouched(original: Sequence[str]) -> list[Placed]:
    """A script's steps, each in its place."""
    return [Placed(text, index) for index, text in enumerate(original)]


def find_changes(original: Sequence[str], perturbed: Sequence[Placed]) -> tuple[Change, ...]:
    """What was changed, ordered by where it stands; what was removed stands where it stood.

    Args:
        original: The original steps.
        perturbed: The perturbed ones. No two have the same origin, and those that are neither added nor
            moved keep their order.

    Raises:
        MismatchError: They are not as described.
    """
    origins = [step.origin for step in perturbed if step.origin is not None]
    kept = [step.origin for step in perturbed if step.origin is not None and not step.moved]
    if len(set(origins)) < len(origins) or kept != sorted(kept):
        raise MismatchError("a step stands twice, or out of place without having been moved")
    changes = [Change(index, None, text) for index, text in enumerate(original) if index not in set(origins)]
    for index, step in enumerate(perturbed):
        if step.origin is None:
            changes.append(Change(None, index, "", step.text))
        elif step.moved or step.text != original[step.origin]:
            changes.append(Change(step.origin, index, original[step.origin], step.text))
    return tuple(sorted(changes, key=_place))


def apply_changes(original: Sequence[str], changes: Iterable[Change]) -> list[str]:
    """The perturbed steps.

    Raises:
        MismatchError: The changes are of another script.
    """
    changes = list(changes)
    taken = {one.original_index: one.original_text for one in changes if one.original_index is not None}
    put = {one.perturbed_index: one.perturbed_text for one in changes if one.perturbed_index is not None}
    return _rebuild(original, taken, put)


def revert_changes(perturbed: Sequence[str], changes: Iterable[Change]) -> list[str]:
    """The original steps.

    Raises:
        MismatchError: The changes are of another script.
    """
    return apply_changes(
        perturbed,
        [
            Change(one.perturbed_index, one.original_index, one.perturbed_text, one.original_text)
            for one in changes
        ],
    )


def _rebuild(steps: Sequence[str], taken: Mapping[int, str], put: Mapping[int, str]) -> list[str]:
    for index, text in taken.items():
        if index >= len(steps) or steps[index] != text:
            raise MismatchError(f"step {index} is not {text!r}")
    rebuilt = [text for index, text in enumerate(steps) if index not in taken]
    for index, text in sorted(put.items()):
        if index > len(rebuilt):
            raise MismatchError(f"there is no place for step {index}")
        rebuilt.insert(index, text)
    return rebuilt


def _place(change: Change) -> tuple[int, int]:
    place = change.original_index if change.perturbed_index is None else change.perturbed_index
    assert place is not None
    return place, -1 if change.original_index is None else change.original_index
