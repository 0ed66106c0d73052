"""Roles on a plane."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from services.roles.clusters import place


def unit(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def distances(points: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.asarray(np.linalg.norm(points[:, np.newaxis] - points, axis=2), np.float64)


@pytest.mark.parametrize("count", [5, 40])
def test_points_of_a_plane_keep_their_distances(count: int) -> None:
    angles = np.random.default_rng(1).uniform(0, 2 * np.pi, count)
    turned = np.linalg.qr(np.random.default_rng(2).standard_normal((30, 30)))[0][:, :2]
    vectors = unit(np.stack([np.cos(angles), np.sin(angles)], axis=1) @ turned.T)
    found = place(vectors)
    assert np.allclose(distances(found.points), distances(vectors), atol=1e-5)
    assert found.explained_share == pytest.approx(1.0, abs=1e-6)


def test_the_share_is_that_of_the_two_largest_components() -> None:
    vectors = unit(np.random.default_rng(3).standard_normal((60, 50)))
    sizes = np.linalg.svd(vectors - vectors.mean(axis=0), compute_uv=False) ** 2
    found = place(vectors)
    assert found.explained_share == pytest.approx(sizes[:2].sum() / sizes.sum(), rel=1e-5)
    assert found.points[:, 0].var() >= found.points[:, 1].var()


def test_the_order_of_vectors_does_not_matter() -> None:
    vectors = unit(np.random.default_rng(4).standard_normal((50, 20)))
    order = np.random.default_rng(5).permutation(50)
    assert np.allclose(place(vectors).points[order], place(vectors[order]).points, atol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 12])
def test_equal_vectors_have_one_point_and_no_share(count: int) -> None:
    found = place(unit(np.ones((count, 16))))
    assert found.explained_share is None
    assert not found.points.any()
