"""Support of a step by the other scripts of a pool."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

from dramaturg.service.threads import IsStopped, StoppedError
from services.agents.offline.material import Floats


def best_matches(steps: Floats, scripts: Sequence[Floats]) -> Floats:
    """The similarity of each step to the nearest step of each script.

    Args:
        steps: Unit vectors, (steps, dimension).
        scripts: Unit vectors of each script's steps, each (its steps, dimension) and not empty.

    Returns:
        Cosines, (steps, scripts).
    """
    if not scripts:
        return np.zeros((len(steps), 0), dtype=np.float32)
    starts = np.cumsum([0, *(len(script) for script in scripts[:-1])])
    nearest: Floats = np.maximum.reduceat(steps @ np.concatenate(scripts).T, starts, axis=1)
    return nearest


def support(steps: Floats, scripts: Sequence[Floats]) -> Floats:
    """The support of each step: its best match in each script, averaged over the scripts, (steps,)."""
    return np.asarray(best_matches(steps, scripts).mean(axis=1), dtype=np.float32)


def script_similarities(
    scripts: Sequence[Floats], is_stopped: IsStopped = lambda: False
) -> NDArray[np.float64]:
    """The similarity of each pair of scripts, (scripts, scripts), symmetric, 1 on the diagonal.

    Steps are matched one to one with the maximum sum of cosines (linear assignment), and normalised like
    Dice's coefficient: twice the sum over the number of steps of both. Therefore an incomplete script is less
    similar, which matching each step with its nearest would not show.

    Args:
        scripts: Unit vectors of each script's steps, each (its steps, dimension) and not empty.
        is_stopped: Called before each pair; the computation ends once it returns True.

    Raises:
        StoppedError: It returned True.
    """
    similarity = np.eye(len(scripts))
    for row, column in itertools.combinations(range(len(scripts)), 2):
        if is_stopped():
            raise StoppedError
        first, second = scripts[row], scripts[column]
        cosines = np.maximum(first @ second.T, 0)
        matched = cosines[scipy.optimize.linear_sum_assignment(cosines, maximize=True)].sum()
        similarity[row, column] = similarity[column, row] = 2 * matched / (len(first) + len(second))
    return similarity
