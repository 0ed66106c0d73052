"""DBSCAN over unit vectors (Ester et al. 1996), with the distances computed block by block.

No list of neighbours is kept: one pass over the distances counts neighbours, a second one joins the cores, a
third one places the border points. Beside the vectors, at most ``_BLOCK_CELLS`` distances exist at once, with
some 80 bytes each where all of them are edges: about 50 MB, however many points there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

Floats: TypeAlias = NDArray[np.float32]
Labels: TypeAlias = NDArray[np.intp]
Checkpoint: TypeAlias = Callable[[], None]
"""Called between two blocks; whatever it raises ends the work."""

NOISE = -1
"""The label of a point in no cluster."""

_BLOCK_CELLS = 1 << 19
_ROUNDING = 1e-6
"""Single precision: two equal unit vectors have a dot product this close to 1."""


@dataclass(frozen=True)
class Density:
    """When points are close, and when they are many."""

    eps: float
    """The largest cosine distance (1 - cosine similarity) of two neighbours, from 0 to 2."""
    min_samples: int
    """How many neighbours, itself included, make a point a core."""


def dbscan(vectors: Floats, density: Density, checkpoint: Checkpoint) -> Labels:
    """Clusters points.

    A cluster is the cores that reach each other over neighbouring cores, and the points that have one of them
    as a neighbour. Such a border point goes to the cluster of its nearest core, of several equally near ones
    to the first core's.

    Args:
        vectors: The points, (points, dimension), each of Euclidean length 1. Where distances tie, or are
            within rounding of ``eps``, their order decides: for a result that does not depend on it, give
            them in an order of their own.
        density: The parameters.
        checkpoint: See ``Checkpoint``.

    Returns:
        The label of each point: the clusters from 0, by their first core, or ``NOISE``.
    """
    nearest = 1.0 - density.eps - _ROUNDING
    counts = np.zeros(len(vectors), np.intp)
    for rows, similarities in _blocks(vectors, vectors, checkpoint):
        counts[rows] = np.count_nonzero(similarities >= nearest, axis=1)
    labels = np.full(len(vectors), NOISE, np.intp)
    cores = np.flatnonzero(counts >= density.min_samples)
    if not len(cores):
        return labels
    labels[cores] = _join(vectors[cores], nearest, checkpoint)
    others = np.flatnonzero(labels == NOISE)
    for rows, similarities in _blocks(vectors[others], vectors[cores], checkpoint):
        best = similarities.argmax(axis=1)
        reached = similarities[np.arange(len(best)), best] >= nearest
        labels[others[rows][reached]] = labels[cores[best[reached]]]
    return labels


def _join(cores: Floats, nearest: float, checkpoint: Checkpoint) -> Labels:
    """The connected components of the cores, numbered by their first member."""
    component = np.arange(len(cores), dtype=np.intp)
    for rows, similarities in _blocks(cores, cores, checkpoint):
        # Edges within a component join nothing, and in a dense cluster they are nearly all.
        apart = component[rows][:, np.newaxis] != component
        sources, targets = np.nonzero((similarities >= nearest) & apart)
        if not len(sources):
            continue
        edges = (component[rows][sources], component[targets])
        graph = coo_array((np.ones(len(sources), np.int8), edges), shape=(len(cores), len(cores)))
        _, joined = connected_components(graph, directed=False)
        component = joined[component].astype(np.intp)
    _, first, inverse = np.unique(component, return_index=True, return_inverse=True)
    numbers = np.empty(len(first), np.intp)
    numbers[np.argsort(first)] = np.arange(len(first))
    return numbers[inverse]


def _blocks(rows: Floats, columns: Floats, checkpoint: Checkpoint) -> Iterator[tuple[slice, Floats]]:
    """The similarities of some rows at a time with all columns."""
    height = max(1, _BLOCK_CELLS // max(1, len(columns)))
    for start in range(0, len(rows), height):
        checkpoint()
        block = slice(start, start + height)
        yield block, rows[block] @ columns.T
