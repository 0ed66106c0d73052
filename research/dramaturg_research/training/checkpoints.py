"""Checkpoints, from which an interrupted training resumes.

A checkpoint has the weights, the optimizer, the random state of dropout and the position in the data. The
order of the data is derived from seed and epoch.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dramaturg_research.training.progress import Progress
from services.edges.plan import TrainingPlan

_STATE = "state.pt"
_BEST = "best.pt"


class CheckpointMismatchError(ValueError):
    """The checkpoint belongs to a training with other settings or other data."""


class Checkpoints:
    """The checkpoint of one training.

    Args:
        folder: Created on first use.
        plan: The settings of the training.
        data_sha256: The hash of its data.
    """

    def __init__(self, folder: Path, plan: TrainingPlan, data_sha256: str) -> None:
        self._folder = folder
        self._identity = {"plan": plan.model_dump(mode="json"), "data_sha256": data_sha256}

    def save(self, progress: Progress, model: Any, optimizer: Any) -> None:
        """Replaces the last state atomically."""
        self._write(
            _STATE,
            {
                "identity": self._identity,
                "progress": progress.model_dump(mode="json"),
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "random": _random_state(),
            },
        )

    def restore(self, model: Any, optimizer: Any) -> Progress | None:
        """Restores the saved state; ``None`` without one.

        Raises:
            CheckpointMismatchError: The checkpoint belongs to another training.
        """
        state = self._read(_STATE)
        if state is None:
            return None
        if differing := differences(state["identity"], self._identity):
            raise CheckpointMismatchError(
                f"{self._folder} holds a training that differs in {', '.join(differing)}: "
                "repeat its settings, write to another folder, or remove it"
            )
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        _set_random_state(state["random"])
        return Progress.model_validate(state["progress"])

    def save_best(self, model: Any) -> None:
        """Saves the weights as the best so far."""
        self._write(_BEST, model.state_dict())

    def restore_best(self, model: Any) -> None:
        """Loads the best weights. Requires an earlier ``save_best``."""
        best = self._read(_BEST)
        assert best is not None
        model.load_state_dict(best)

    def clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self, name: str, state: object) -> None:
        import torch

        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._folder / f"{name}.partial"
        with partial.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._folder / name)

    def _read(self, name: str) -> dict[str, Any] | None:
        import torch

        path = self._folder / name
        if not path.is_file():
            return None
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return state


def differences(saved: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """The names of the settings that differ, in order."""
    flat = [{"data": identity["data_sha256"], **identity["plan"]} for identity in (saved, present)]
    names = dict.fromkeys([*flat[0], *flat[1]])
    return [name for name in names if flat[0].get(name) != flat[1].get(name)]


def _random_state() -> dict[str, Any]:
    import torch

    state: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def _set_random_state(state: Mapping[str, Any]) -> None:
    import torch

    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
