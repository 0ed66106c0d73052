"""DBSCAN against its definition, and against another implementation where one is installed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from services.roles import clusters as module
from services.roles.clusters import NOISE, Density, dbscan

Floats = NDArray[np.float32]


def unit(vectors: NDArray[np.float64]) -> Floats:
    scaled: NDArray[np.float64] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled.astype(np.float32)


def never() -> None:
    """A checkpoint that ends nothing."""


def blobs(seed: int, count: int, centres: int = 4, spread: float = 0.25) -> Floats:
    random = np.random.default_rng(seed)
    middle = random.normal(size=(centres, 8))
    points = middle[random.integers(centres, size=count)] + spread * random.normal(size=(count, 8))
    return unit(points)


def by_definition(vectors: Floats, density: Density) -> tuple[list[set[int]], set[int], NDArray[np.float32]]:
    """Clusters of cores, all points that no core reaches, and the distances: by the words of the paper."""
    distances = 1 - vectors @ vectors.T
    near = distances <= density.eps + 1e-6
    cores = {i for i in range(len(vectors)) if near[i].sum() >= density.min_samples}
    clusters: list[set[int]] = []
    left = set(cores)
    while left:
        reached, frontier = set(), [min(left)]
        while frontier:
            point = frontier.pop()
            if point not in reached:
                reached.add(point)
                frontier += [other for other in cores if near[point, other]]
        clusters.append(reached)
        left -= reached
    noise = {i for i in range(len(vectors)) if not any(near[i, core] for core in cores)}
    return clusters, noise, distances


@given(st.integers(0, 10_000), st.integers(1, 60), st.floats(0.0, 1.0), st.integers(1, 6))
def test_it_is_what_the_definition_says(seed: int, count: int, eps: float, min_samples: int) -> None:
    vectors, density = blobs(seed, count), Density(eps, min_samples)
    labels = dbscan(vectors, density, never)
    clusters, noise, distances = by_definition(vectors, density)
    assert {i for i in range(count) if labels[i] == NOISE} == noise
    assert len(set(labels.tolist()) - {NOISE}) == len(clusters)
    cores = sorted(set().union(*clusters)) if clusters else []
    for cluster in clusters:
        assert len({labels[i] for i in cluster}) == 1
    for point in set(range(count)) - noise - set(cores):
        own = min(distances[point, core] for core in cores if labels[core] == labels[point])
        assert own <= min(distances[point, core] for core in cores) + 1e-6
    firsts = [labels[min(cluster)] for cluster in sorted(clusters, key=min)]
    assert firsts == list(range(len(clusters)))


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, density = blobs(3, 200), Density(0.1, 4)
    whole = dbscan(vectors, density, never)
    assert len(set(whole.tolist())) > 2
    monkeypatch.setattr(module, "_BLOCK_CELLS", 700)
    assert dbscan(vectors, density, never).tolist() == whole.tolist()


def test_a_chain_is_one_cluster_however_far_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_CELLS", 64)
    angles = np.linspace(0, np.pi, 100)
    chain = unit(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    step = 1 - np.cos(angles[1])
    assert set(dbscan(chain, Density(step * 1.1, 2), never).tolist()) == {0}
    assert set(dbscan(chain, Density(step * 0.5, 2), never).tolist()) == {NOISE}


def test_equal_vectors_are_neighbours_at_distance_0() -> None:
    vectors = np.repeat(blobs(5, 20), 3, axis=0)
    labels = dbscan(vectors, Density(0.0, 3), never)
    assert labels.tolist() == np.repeat(np.arange(20), 3).tolist()


def test_min_samples_1_leaves_no_noise() -> None:
    assert dbscan(blobs(1, 30), Density(0.0, 1), never).tolist() == list(range(30))


def test_a_border_point_goes_to_its_nearest_core() -> None:
    def at(*degrees: float) -> Floats:
        radians = np.radians(degrees)
        return unit(np.stack([np.cos(radians), np.sin(radians)], axis=1))

    points = at(0, 0.5, 1, 2, 11.2, 20, 20.5, 21, 21.5)
    eps = 1 - float(np.cos(np.radians(9.25)))
    labels = dbscan(points, Density(eps, 4), never).tolist()
    assert labels == [0, 0, 0, 0, 1, 1, 1, 1, 1]


def test_the_checkpoint_ends_the_work() -> None:
    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        dbscan(blobs(1, 10), Density(0.1, 2), stop)


@pytest.mark.parametrize("seed", range(5))
def test_it_agrees_with_scikit_learn(seed: int) -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    vectors = blobs(seed, 300)
    theirs = cluster.DBSCAN(eps=0.1, min_samples=4, metric="cosine").fit(vectors)
    ours = dbscan(vectors, Density(0.1, 4), never)
    assert ((ours == NOISE) == (theirs.labels_ == -1)).all()
    cores = theirs.core_sample_indices_
    pairs = set(zip(ours[cores].tolist(), theirs.labels_[cores].tolist(), strict=True))
    assert len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs})
