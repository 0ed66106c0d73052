"""DBSCAN over unit vectors (Ester et al. 1996), with the distances computed block by block.

No list of neighbours is kept: one pass over the distances counts neighbours, a second one joins the cores, a
third one places the border points. Beside the vectors, at most ``_BLOCK_CELLS`` distances exist at once, with
some 80 bytes each where all of them are edges: about 50 MB, however many points there are.

``place`` shows the vectors on a plane: their first two principal components.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import svds

from dramaturg.api.judging.v1.pair_judge_service_pb2 import ROLE_ORIGIN_OBJECTIVE, Role
from dramaturg.service.threads import Checkpoint

AXES = 2
"""The number of components."""

_DENSE = 1024
"""Above this number of points and dimensions, components are found by iteration."""
_EQUAL = 1e-9
"""Embeddings with less variance are equal but for rounding."""
_DECIMALS = 6


@dataclass(frozen=True)
class Plane:
    """Points on a plane."""

    points: NDArray[np.float64]
    """(points, 2), to six decimals. The larger entry of each component is positive, which fixes its sign."""
    explained_share: float | None
    """The share of the variance on the plane, from 0 to 1. None: all vectors are equal."""


def place(vectors: NDArray[np.float32]) -> Plane:
    """Places vectors on the plane that keeps most of their variance (classical multidimensional scaling).

    Args:
        vectors: The vectors, (points, dimension), none of length 0. Their directions alone count.
    """
    found = vectors.astype(np.float64)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    found -= found.mean(axis=0)
    variance = float(np.square(found).sum())
    points = np.zeros((len(found), AXES))
    if variance < _EQUAL * len(found):
        return Plane(points, None)
    axes = _components(found)
    points[:, : len(axes)] = found @ axes.T
    return Plane(np.round(points, _DECIMALS), min(1.0, float(np.square(points).sum()) / variance))


def _components(centred: NDArray[np.float64]) -> NDArray[np.float64]:
    """The first components, (at most 2, dimension), the one of most variance first."""
    count, dimension = centred.shape
    if dimension <= min(count, _DENSE):
        axes = _eigenvectors(centred.T @ centred).T
    elif count <= _DENSE:
        rotated = _eigenvectors(centred @ centred.T).T @ centred
        sizes = np.linalg.norm(rotated, axis=1, keepdims=True)
        axes = (rotated / np.where(sizes > 0, sizes, 1.0))[sizes[:, 0] > _EQUAL]
    else:
        start = np.random.default_rng(0).standard_normal(min(centred.shape))
        _, sizes, found = svds(centred, k=AXES, v0=start, tol=1e-4)
        axes = found[np.argsort(-sizes)]
    largest = np.abs(np.round(axes, _DECIMALS)).argmax(axis=1)
    signs = np.sign(axes[np.arange(len(axes)), largest])
    return np.asarray(axes * np.where(signs == 0, 1.0, signs)[:, np.newaxis], np.float64)


def _eigenvectors(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The eigenvectors of the two largest eigenvalues as columns, the largest first."""
    last = len(matrix) - 1
    return np.asarray(eigh(matrix, subset_by_index=(max(0, last - AXES + 1), last))[1][:, ::-1], np.float64)


Floats: TypeAlias = NDArray[np.float32]
Labels: TypeAlias = NDArray[np.intp]

NOISE = -1
"""The label of a point in no cluster."""

_BLOCK_CELLS = 1 << 19
_ROUNDING = 1e-6
"""Single precision: two equal unit vectors have a dot product this close to 1."""


@dataclass(frozen=True)
class Density:
    """The parameters of DBSCAN."""

    eps: float
    """The largest cosine distance (1 - cosine similarity) of two neighbours, from 0 to 2."""
    min_samples: int
    """The minimum number of neighbours of a core point, including itself."""


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
        checkpoint: Called between blocks.

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
    """The similarities of blocks of rows with all columns."""
    height = max(1, _BLOCK_CELLS // max(1, len(columns)))
    for start in range(0, len(rows), height):
        checkpoint()
        block = slice(start, start + height)
        yield block, rows[block] @ columns.T


DEFAULT_EPS = 0.3
"""The default maximum cosine distance of neighbours."""
DEFAULT_MIN_SAMPLES = 2
"""The default number of neighbours of a core point."""

_TIE_DECIMALS = 9
"""Similarities that are equal to this number of decimals are ties."""


@dataclass(frozen=True)
class Cluster:
    """A cluster of similar roles, as ascending indices."""

    members: tuple[int, ...]
    """All of them."""
    kept: tuple[int, ...]
    """The member nearest the centre, and objective roles, which are always kept."""


@dataclass(frozen=True)
class Clustering:
    """Clusters and noise."""

    clusters: tuple[Cluster, ...]
    """The clusters, by their first member."""
    noise: tuple[int, ...]
    """The indices of the roles in no cluster, ascending."""

    @property
    def kept(self) -> tuple[int, ...]:
        """The indices of all kept roles, ascending."""
        return tuple(sorted([*self.noise, *(index for cluster in self.clusters for index in cluster.kept)]))


def text_of(role: Role) -> str:
    """The embedded text of a role: its type and description (DRPE, section 3.1)."""
    return f"{role.type}: {role.description}"


def cluster(
    roles: Sequence[Role], vectors: NDArray[np.float32], density: Density, checkpoint: Checkpoint
) -> Clustering:
    """Clusters roles and selects the kept ones.

    The result does not depend on the order of roles: they are sorted, objective roles first, then by text. Of
    members equally near the centre the first in that order is kept, so that no equally good subjective role
    is kept beside an objective one.

    Args:
        roles: The roles.
        vectors: The embeddings of their texts, (roles, dimension), none of length 0.
        density: The parameters of DBSCAN.
        checkpoint: Called between blocks; may raise to stop the work.
    """
    order = sorted(range(len(roles)), key=lambda index: (*_rank(roles[index]), index))
    ordered = vectors[order].astype(np.float64)
    ordered /= np.linalg.norm(ordered, axis=1, keepdims=True)
    labels = dbscan(ordered.astype(np.float32), density, checkpoint)
    members: dict[int, list[int]] = {}
    for place, label in enumerate(labels.tolist()):
        members.setdefault(label, []).append(place)
    noise = members.pop(NOISE, [])
    clusters = []
    for places in members.values():
        indices = [order[place] for place in places]
        central = indices[_central(ordered[places])]
        kept = {central} | {index for index in indices if _is_objective(roles[index])}
        clusters.append(Cluster(tuple(sorted(indices)), tuple(sorted(kept))))
    clusters.sort(key=lambda found: found.members)
    return Clustering(tuple(clusters), tuple(sorted(order[place] for place in noise)))


def _rank(role: Role) -> tuple[bool, str, int, str]:
    return not _is_objective(role), text_of(role), role.origin, role.type


def _is_objective(role: Role) -> bool:
    return role.origin == ROLE_ORIGIN_OBJECTIVE


def _central(vectors: NDArray[np.float64]) -> int:
    """The first row nearest the mean.

    Two vectors are always equally near their mean; rounding must not break that tie.
    """
    similarities = vectors @ vectors.mean(axis=0)
    return int(np.round(similarities, _TIE_DECIMALS).argmax())
