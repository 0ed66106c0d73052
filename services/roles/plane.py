"""Roles on a plane: the first two principal components of their embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import svds

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
