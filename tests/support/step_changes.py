"""Applies and reverts recorded changes of a script's steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dramaturg.api.generation.v1.authoring_datasets_pb2 import StepChange
from dramaturg.meta_evaluation.rules import Change


def read_change(message: StepChange) -> Change:
    return Change(
        message.original_index if message.HasField("original_index") else None,
        message.perturbed_index if message.HasField("perturbed_index") else None,
        message.original_text,
        message.perturbed_text,
    )


def apply_changes(original: Sequence[str], changes: Iterable[Change]) -> list[str]:
    """The perturbed steps. Fails where a change names another step than the original has."""
    changes = list(changes)
    removed = {one.original_index: one.original_text for one in changes if one.original_index is not None}
    added = {one.perturbed_index: one.perturbed_text for one in changes if one.perturbed_index is not None}
    assert removed == {index: original[index] for index in removed}
    steps = [text for index, text in enumerate(original) if index not in removed]
    for index, text in sorted(added.items()):
        assert index <= len(steps)
        steps.insert(index, text)
    return steps


def revert_changes(perturbed: Sequence[str], changes: Iterable[Change]) -> list[str]:
    """The original steps. Fails where a change names another step than the perturbed ones have."""
    return apply_changes(
        perturbed,
        [
            Change(one.perturbed_index, one.original_index, one.perturbed_text, one.original_text)
            for one in changes
        ],
    )
