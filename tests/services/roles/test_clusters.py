"""Which roles stay.

Roles on a plane.
"""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dramaturg.api.embedding.v1 import embedding_service_pb2, embedding_service_pb2_grpc
from dramaturg.api.embedding.v1.embedding_service_pb2 import (
    EmbedRequest,
    EmbedResponse,
    EmbedTokensRequest,
    EmbedTokensResponse,
)
from dramaturg.api.judging.v1 import pair_judge_service_pb2
from dramaturg.api.judging.v1.pair_judge_service_pb2 import Role
from dramaturg.api.roles.v1.role_service_pb2 import ClusterRolesRequest
from dramaturg.service.contract import Contract
from dramaturg.service.errors import from_rpc_error
from dramaturg.testing import serve
from services.roles.clusters import Clustering, Density, cluster, place, text_of

if TYPE_CHECKING:
    from dramaturg.api.roles.v1.role_service_pb2_grpc import RoleServiceAsyncStub

Serve = Callable[..., AbstractAsyncContextManager["RoleServiceAsyncStub"]]

OBJECTIVE = pair_judge_service_pb2.ROLE_ORIGIN_OBJECTIVE
COARSE = pair_judge_service_pb2.ROLE_ORIGIN_SUBJECTIVE_COARSE
FINE = pair_judge_service_pb2.ROLE_ORIGIN_SUBJECTIVE_FINE

GROUPS = (
    ("Student", "Learns about the world at school.", "Is at school and learns about the world."),
    ("Physician", "Treats patients in a hospital.", "Treats the patients of a hospital."),
    ("Farmer", "Grows wheat and keeps cows.", "Keeps cows and grows wheat."),
    ("Football fan", "Watches every match of the home club.", "Watches all matches of the home club."),
    ("Judge", "Decides criminal cases in court.", "Decides cases of crime in a court."),
    ("Musician", "Plays the violin in an orchestra.", "Plays violin in the orchestra."),
    ("Astronomer", "Observes distant galaxies.", "Observes galaxies that are distant."),
    ("Cook", "Prepares meals in a restaurant kitchen.", "Prepares meals in the kitchen of a restaurant."),
    ("Sailor", "Works on a cargo ship.", "Works aboard a cargo ship."),
    ("Poet", "Writes verse about love.", "Writes verses about love."),
)


def thirty_roles() -> list[Role]:
    """Ten readers, each worded in three ways."""
    return [
        Role(type=title, description=description, origin=COARSE)
        for name, one, other in GROUPS
        for title, description in ((name, one), (name, other), (f"{name}s", one))
    ]


@pytest.mark.parametrize("seed", [None, 1])
async def test_one_of_each_group_of_near_duplicates_stays(serve_clustering: Serve, seed: int | None) -> None:
    roles = thirty_roles()
    if seed is not None:
        roles = [roles[index] for index in np.random.default_rng(seed).permutation(len(roles))]
    async with serve_clustering() as stub:
        response = await stub.ClusterRoles(ClusterRolesRequest(roles=roles))
        ordered = await stub.ClusterRoles(ClusterRolesRequest(roles=thirty_roles()))
    groups = [role.type.removesuffix("s") for role in response.roles]
    assert sorted(groups) == sorted(name for name, _, _ in GROUPS)
    assert {text_of(role) for role in response.roles} == {text_of(role) for role in ordered.roles}
    assert [len(one.member_indices) for one in response.clusters] == [3] * 10
    parameters = response.provenance.parameters
    assert (parameters["eps"], parameters["min_samples"]) == ("0.3", "2")
    assert parameters["embedding_model"] == "all-MiniLM-L6-v2"
    assert len(parameters["embedding_weights_sha256"]) == 64
    points = np.array([(one.x, one.y) for one in response.map.points])
    assert points.shape == (30, 2)
    assert 0.1 < response.map.explained_share < 1
    # Roles of a group are nearer each other than the groups are.
    spread = [np.linalg.norm(points[list(one.member_indices)].std(axis=0)) for one in response.clusters]
    assert np.mean(spread) < np.linalg.norm(points.std(axis=0)) / 2


async def test_objective_roles_are_never_left_out_and_noise_stays(serve_clustering: Serve) -> None:
    roles = thirty_roles()[:3]
    for index in (0, 2):
        roles[index].origin = OBJECTIVE
    roles.insert(1, Role(type="Beekeeper", description="Keeps bees.", origin=FINE))
    async with serve_clustering() as stub:
        response = await stub.ClusterRoles(ClusterRolesRequest(roles=roles))
    (found,) = response.clusters
    assert list(found.member_indices) == [0, 2, 3]
    assert {0, 3} <= set(found.kept_indices)
    assert list(response.noise_indices) == [1]
    assert [role.type for role in response.roles][:2] == ["Student", "Beekeeper"]


async def test_eps_and_min_samples_are_the_requests(serve_clustering: Serve) -> None:
    request = ClusterRolesRequest(roles=thirty_roles(), eps=0.0, min_samples=1)
    async with serve_clustering() as stub:
        apart = await stub.ClusterRoles(request)
        request.eps = 2.0
        together = await stub.ClusterRoles(request)
    assert (len(apart.roles), len(apart.clusters), list(apart.noise_indices)) == (30, 30, [])
    assert (len(together.roles), len(together.clusters)) == (1, 1)
    assert apart.provenance.parameters["eps"] == "0"


async def test_limits_are_those_of_the_contract(serve_clustering: Serve) -> None:
    async with serve_clustering() as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ClusterRoles(ClusterRolesRequest(eps=2.5, min_samples=0))
    fields = [violation.field for violation in from_rpc_error(caught.value).violations]
    assert fields == ["roles", "eps", "min_samples"]


class Vectors(embedding_service_pb2_grpc.EmbeddingServiceServicer):
    """Embeds as the function says."""

    def __init__(self, embed: Callable[[Sequence[str]], NDArray[np.float32]]) -> None:
        self._embed = embed
        self.largest = 0

    async def Embed(self, request: EmbedRequest, context: Any) -> EmbedResponse:
        self.largest = max(self.largest, len(request.texts))
        response = EmbedResponse(model="fake", dimension=8)
        for row in self._embed(request.texts):
            response.embeddings.add(values=row.tolist())
        return response

    async def EmbedTokens(self, request: EmbedTokensRequest, context: Any) -> EmbedTokensResponse:
        raise NotImplementedError("roles are embedded as whole texts")

    @property
    def contract(self) -> Contract:
        return Contract.make(
            embedding_service_pb2.DESCRIPTOR.services_by_name["EmbeddingService"],
            embedding_service_pb2_grpc.add_EmbeddingServiceServicer_to_server,
            self,
            name="fake-embedding",
            version="1.0.0",
            description="Embeds as told.",
        )


BROKEN: dict[str, Callable[[Sequence[str]], NDArray[np.float32]]] = {
    "too few": lambda texts: np.ones((len(texts) - 1, 8), np.float32),
    "a zero": lambda texts: np.zeros((len(texts), 8), np.float32),
    "not a number": lambda texts: np.full((len(texts), 8), np.nan, np.float32),
}


@pytest.mark.parametrize("embed", BROKEN.values(), ids=BROKEN)
async def test_vectors_that_cannot_be_compared_are_an_error(
    serve_clustering: Serve, embed: Callable[[Sequence[str]], NDArray[np.float32]]
) -> None:
    async with serve(Vectors(embed).contract) as embedding, serve_clustering(embedding.target) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ClusterRoles(ClusterRolesRequest(roles=thirty_roles()))
    error = from_rpc_error(caught.value)
    assert error.code is grpc.StatusCode.INTERNAL
    assert error.metadata["service"] == "embedding"


async def test_an_embedding_service_that_is_away_is_an_error(serve_clustering: Serve) -> None:
    async with serve_clustering("localhost:1") as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ClusterRoles(ClusterRolesRequest(roles=thirty_roles()), timeout=5)
    assert caught.value.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


def kept(roles: Sequence[Role], clustering: Clustering) -> list[tuple[str, int]]:
    return sorted((text_of(roles[index]), roles[index].origin) for index in clustering.kept)


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Role], NDArray[np.float32], list[int]]:
    """Roles, some of them equal, with vectors by their texts, and another order."""
    names = draw(st.lists(st.integers(0, 30), min_size=1, max_size=25))
    origins = st.sampled_from([OBJECTIVE, COARSE, FINE])
    roles = [Role(type=f"R{name}", description="d", origin=draw(origins)) for name in names]
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    table = random.normal(size=(31, 3))
    vectors = np.array([table[name] for name in names])
    order = draw(st.permutations(range(len(names))))
    return roles, (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), order


@given(situations(), st.floats(0, 1), st.integers(1, 5))
def test_the_order_given_changes_nothing(situation: Any, eps: float, min_samples: int) -> None:
    roles, vectors, order = situation
    density = Density(eps, min_samples)
    one = cluster(roles, vectors, density, lambda: None)
    shuffled = [roles[index] for index in order]
    other = cluster(shuffled, vectors[order], density, lambda: None)
    assert kept(roles, one) == kept(shuffled, other)
    objective = {index for index, role in enumerate(roles) if role.origin == OBJECTIVE}
    assert objective <= set(one.kept)
    everyone = [*one.noise, *(index for found in one.clusters for index in found.members)]
    assert sorted(everyone) == list(range(len(roles)))
    for found in one.clusters:
        assert set(found.kept) <= set(found.members)
        assert len(set(found.kept) - objective) <= 1
    assert [found.members for found in one.clusters] == sorted(found.members for found in one.clusters)


def test_the_nearest_to_the_centre_stays() -> None:
    roles = [Role(type=name, description="d") for name in ("Left", "Middle", "Right")]
    angles = np.radians([0.0, 11.0, 20.0])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    found = cluster(roles, vectors, Density(0.1, 2), lambda: None)
    assert found.kept == (1,)


def test_an_objective_role_is_enough_where_it_is_as_near() -> None:
    """Two members are always equally near their centre."""
    roles = [
        Role(type="Apprentice", description="d", origin=FINE),
        Role(type="Novice", description="d", origin=OBJECTIVE),
    ]
    vectors = np.array([[1.0, 0.0], [0.96, 0.28]], np.float32)
    assert cluster(roles, vectors, Density(0.1, 2), lambda: None).kept == (1,)
    roles[1].origin = FINE
    assert cluster(roles, vectors, Density(0.1, 2), lambda: None).kept == (0,)


COUNT = 10_000


def crowd(texts: Sequence[str]) -> NDArray[np.float32]:
    """Vectors by text: roles of one group are alike, groups are not; one group has half of all roles."""
    groups = [int(text.split()[1]) for text in texts]
    rows = [
        np.random.default_rng([group]).normal(size=384)
        + 0.1 * np.random.default_rng([group, len(text), hash_of(text)]).normal(size=384)
        for group, text in zip(groups, texts, strict=True)
    ]
    return np.array(rows, np.float32)


def hash_of(text: str) -> int:
    return zlib.crc32(text.encode())


@pytest.mark.slow
async def test_ten_thousand_roles_are_clustered_in_bounded_memory(serve_clustering: Serve) -> None:
    roles = [
        Role(type=f"Reader {0 if index % 2 else index % 1000} of", description=f"number {index}", origin=FINE)
        for index in range(COUNT)
    ]
    vectors = Vectors(crowd)
    async with (
        serve(vectors.contract) as embedding,
        serve_clustering(embedding.target) as stub,
    ):
        response = await stub.ClusterRoles(ClusterRolesRequest(roles=roles), timeout=100)
    assert len(response.clusters) == len(response.roles) == 500
    assert max(len(found.member_indices) for found in response.clusters) == COUNT // 2 + 10
    assert vectors.largest <= 4096


@pytest.mark.slow
def test_the_memory_of_clustering_does_not_grow_with_the_edges() -> None:
    """All points are neighbours: an index a pair would take 800 MB."""
    roles = [Role(type=f"R{index}", description="d") for index in range(COUNT)]
    vectors = np.random.default_rng(0).normal(size=(COUNT, 64)).astype(np.float32)
    tracemalloc.start()
    clustering = cluster(roles, vectors, Density(2.0, 2), lambda: None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(clustering.clusters) == 1
    assert peak < 100 << 20


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
