"""Servicer of RoleService."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.roles.v1 import role_service_pb2 as pb
from dramaturg.api.roles.v1 import role_service_pb2_grpc as pb_grpc
from dramaturg.judge import VERSION
from dramaturg.judge.protocols import CALLS_MODELS
from dramaturg.judge.provenance import sign
from services.roles.clusters import DEFAULT_EPS, DEFAULT_MIN_SAMPLES, Density, Plane, cluster, place, text_of
from services.roles.embedder import Embedded, Embedder
from services.roles.generator import RoleGenerator
from services.roles.worker import Worker

DESCRIPTOR = pb.DESCRIPTOR.services_by_name["RoleService"]


class RoleServicer(pb_grpc.RoleServiceServicer):
    """Serves roles.

    Args:
        generator: Generates them.
        embedder: Embeds them.
    """

    name: str = "llm-roles"
    version: str = VERSION
    description: str = "Generates the readers of a text with a language model and removes similar ones."
    criteria: Sequence[str] = ()
    capabilities: Sequence[str] = (CALLS_MODELS,)

    def __init__(self, generator: RoleGenerator, embedder: Embedder) -> None:
        self._generator = generator
        self._embedder = embedder
        self._worker = Worker()

    async def GenerateRoles(self, request: pb.GenerateRolesRequest, context: Any) -> pb.GenerateRolesResponse:
        del context
        started = time.perf_counter()
        response = await self._generator.generate(request)
        sign(response.provenance, self, DESCRIPTOR.full_name, started=started)
        return response

    async def ClusterRoles(self, request: pb.ClusterRolesRequest, context: Any) -> pb.ClusterRolesResponse:
        """Removes roles that are similar to others."""
        del context
        started = time.perf_counter()
        density = Density(
            request.eps if request.HasField("eps") else DEFAULT_EPS,
            request.min_samples if request.HasField("min_samples") else DEFAULT_MIN_SAMPLES,
        )
        embedded = await self._embedder.embed([text_of(role) for role in request.roles])
        clustering = await self._worker.run(partial(cluster, request.roles, embedded.vectors, density))
        plane = await self._worker.run(lambda _: place(embedded.vectors))
        response = pb.ClusterRolesResponse(
            roles=[request.roles[index] for index in clustering.kept],
            clusters=[
                pb.RoleCluster(member_indices=found.members, kept_indices=found.kept)
                for found in clustering.clusters
            ],
            noise_indices=clustering.noise,
            provenance=Provenance(parameters=_parameters(density, embedded)),
            map=_map(plane),
        )
        sign(response.provenance, self, DESCRIPTOR.full_name, started=started)
        return response


def _map(plane: Plane) -> pb.RoleMap:
    return pb.RoleMap(
        points=[pb.RolePoint(x=x, y=y) for x, y in plane.points.tolist()],
        explained_share=plane.explained_share,
    )


def _parameters(density: Density, embedded: Embedded) -> dict[str, str]:
    parameters = {
        "embedding_model": embedded.model,
        "eps": f"{density.eps:g}",
        "min_samples": str(density.min_samples),
    }
    if embedded.weights_sha256:
        parameters["embedding_weights_sha256"] = embedded.weights_sha256
    if embedded.truncated:
        parameters["truncated_roles"] = str(embedded.truncated)
    return parameters
