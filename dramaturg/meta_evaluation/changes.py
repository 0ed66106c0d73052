"""Changes between an original and a perturbed script; either can be rebuilt from the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dramaturg.api.generation.v1.authoring_datasets_pb2 import StepChange


class PlacedStep(NamedTuple):
    """A step of a perturbed script."""

    text: str
    """The text of the step."""
    origin: int | None = None
    """The index of the original step, from 0. None: an added step."""
    moved: bool = False
    """Whether its order among the kept steps changed."""


@dataclass(frozen=True)
class Change:
    """One step that was removed, added, reworded or moved (``generation.v1.StepChange``)."""

    original_index: int | None
    """Index in the original, from 0. None: an added step."""
    perturbed_index: int | None
    """Index in the perturbed script, from 0. None: a removed step."""
    original_text: str = ""
    """Text before the change."""
    perturbed_text: str = ""
    """Text after the change."""

    @classmethod
    def from_message(cls, message: StepChange) -> Change:
        """Decodes a contract message."""
        return cls(
            message.original_index if message.HasField("original_index") else None,
            message.perturbed_index if message.HasField("perturbed_index") else None,
            message.original_text,
            message.perturbed_text,
        )

    def message(self) -> StepChange:
        """Encodes a contract message."""
        return StepChange(
            original_index=self.original_index,
            perturbed_index=self.perturbed_index,
            original_text=self.original_text,
            perturbed_text=self.perturbed_text,
        )


class MismatchError(ValueError):
    """The changes belong to another script."""


def untouched(original: Sequence[str]) -> list[PlacedStep]:
    """The steps of a script without changes."""
    return [PlacedStep(text, index) for index, text in enumerate(original)]


def find_changes(original: Sequence[str], perturbed: Sequence[PlacedStep]) -> tuple[Change, ...]:
    """The changes, ordered by index in the perturbed script, removed steps by their original index.

    Args:
        original: The original steps.
        perturbed: The perturbed steps. Origins are unique, and steps that are neither added nor moved keep
            their order.

    Raises:
        MismatchError: An origin repeats, or the order changed without ``moved``.
    """
    origins = [step.origin for step in perturbed if step.origin is not None]
    kept = [step.origin for step in perturbed if step.origin is not None and not step.moved]
    if len(set(origins)) < len(origins) or kept != sorted(kept):
        raise MismatchError("an origin repeats, or a step changed its order without being marked as moved")
    changes = [Change(index, None, text) for index, text in enumerate(original) if index not in set(origins)]
    for index, step in enumerate(perturbed):
        if step.origin is None:
            changes.append(Change(None, index, "", step.text))
        elif step.moved or step.text != original[step.origin]:
            changes.append(Change(step.origin, index, original[step.origin], step.text))
    return tuple(sorted(changes, key=_position))


def apply_changes(original: Sequence[str], changes: Iterable[Change]) -> list[str]:
    """Applies changes to the original steps.

    Raises:
        MismatchError: The changes belong to another script.
    """
    changes = list(changes)
    removed = {one.original_index: one.original_text for one in changes if one.original_index is not None}
    added = {one.perturbed_index: one.perturbed_text for one in changes if one.perturbed_index is not None}
    return _rebuild(original, removed, added)


def revert_changes(perturbed: Sequence[str], changes: Iterable[Change]) -> list[str]:
    """Reverts changes of the perturbed steps.

    Raises:
        MismatchError: The changes belong to another script.
    """
    return apply_changes(
        perturbed,
        [
            Change(one.perturbed_index, one.original_index, one.perturbed_text, one.original_text)
            for one in changes
        ],
    )


def _rebuild(steps: Sequence[str], removed: Mapping[int, str], added: Mapping[int, str]) -> list[str]:
    for index, text in removed.items():
        if index >= len(steps) or steps[index] != text:
            raise MismatchError(f"step {index} is not {text!r}")
    rebuilt = [text for index, text in enumerate(steps) if index not in removed]
    for index, text in sorted(added.items()):
        if index > len(rebuilt):
            raise MismatchError(f"step {index} is out of range")
        rebuilt.insert(index, text)
    return rebuilt


def _position(change: Change) -> tuple[int, int]:
    index = change.original_index if change.perturbed_index is None else change.perturbed_index
    assert index is not None
    return index, -1 if change.original_index is None else change.original_index
