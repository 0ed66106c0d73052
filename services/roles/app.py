"""The role service: its client of the embedding service, its servicer, its wiring."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
from numpy.typing import NDArray

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest, EmbedResponse
from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceStub
from dramaturg.api.roles.v1 import role_service_pb2 as pb
from dramaturg.api.roles.v1 import role_service_pb2_grpc
from dramaturg.api.roles.v1 import role_service_pb2_grpc as pb_grpc
from dramaturg.judge import VERSION
from dramaturg.judge.llm import Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.protocols import CALLS_MODELS
from dramaturg.judge.provenance import sign
from dramaturg.judge.spec import open_model_contract
from dramaturg.service.channel import open_channel
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError, downstream
from dramaturg.service.threads import ThreadPool, with_checkpoint
from services.roles.clusters import (
    DEFAULT_EPS,
    DEFAULT_MIN_SAMPLES,
    Density,
    Plane,
    cluster,
    place,
    text_of,
)
from services.roles.generator import RoleGenerator
from services.roles.settings import RoleSettings

if TYPE_CHECKING:
    from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceAsyncStub


SERVICE = "embedding"
"""The name of the dependency in errors."""

_TEXTS_PER_CALL = 512  # 2,200 characters each and 4,096 dimensions stay below 16 MiB both ways


@dataclass(frozen=True)
class Embedded:
    vectors: NDArray[np.float32]
    """(texts, dimension), none of length 0."""
    truncated: int
    """The number of truncated texts."""
    model: str
    """The model."""
    weights_sha256: str
    """The hash of the weights; empty if the service does not report it."""


class Embedder:
    """Embeds texts.

    Args:
        stub: The embedding service.
        model: The model. Empty: the service's default.
    """

    def __init__(self, stub: EmbeddingServiceAsyncStub, model: str = "") -> None:
        self._stub = stub
        self._model = model

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Embeds texts, each distinct one once.

        Raises:
            ServiceError: The service failed, or returned invalid vectors.
        """
        distinct = list(dict.fromkeys(texts))
        blocks: list[NDArray[np.float32]] = []
        cut: list[bool] = []
        response = EmbedResponse()
        for start in range(0, len(distinct), _TEXTS_PER_CALL):
            part = distinct[start : start + _TEXTS_PER_CALL]
            response = await self._ask(part)
            blocks.append(_matrix(response, len(part)))
            cut += [embedding.truncated for embedding in response.embeddings]
        if len({block.shape[1] for block in blocks}) > 1:
            raise _broken("vectors of different lengths")
        place = {text: row for row, text in enumerate(distinct)}
        rows = [place[text] for text in texts]
        return Embedded(
            np.concatenate(blocks)[rows],
            sum(cut[row] for row in rows),
            response.model,
            response.weights_sha256,
        )

    async def _ask(self, texts: Sequence[str]) -> EmbedResponse:
        try:
            return await self._stub.Embed(EmbedRequest(texts=texts, model=self._model))
        except grpc.aio.AioRpcError as error:
            raise downstream(error, SERVICE) from error


def _matrix(response: EmbedResponse, count: int) -> NDArray[np.float32]:
    rows = [np.array(embedding.values, np.float32) for embedding in response.embeddings]
    if len(rows) != count:
        raise _broken(f"{len(rows)} vectors for {count} texts")
    if len({len(row) for row in rows}) > 1:
        raise _broken("vectors of different lengths")
    matrix = np.stack(rows)
    lengths = np.linalg.norm(matrix, axis=1)
    if not (np.isfinite(lengths) & (lengths > 0)).all():
        raise _broken("a vector whose length is 0 or no number")
    return matrix


def _broken(what: str) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.INTERNAL,
        error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED,
        f"{SERVICE} returned {what}",
        metadata={"service": SERVICE},
    )


DESCRIPTOR = pb.DESCRIPTOR.services_by_name["RoleService"]


class RoleServicer(pb_grpc.RoleServiceServicer):
    """Serves roles.

    Args:
        generator: Generates them.
        embedder: Embeds them.
        threads: One thread: computations at the same time would need more memory and save no time.
    """

    name: str = "llm-roles"
    version: str = VERSION
    description: str = "Generates the readers of a text with a language model and removes similar ones."
    criteria: Sequence[str] = ()
    capabilities: Sequence[str] = (CALLS_MODELS,)

    def __init__(self, generator: RoleGenerator, embedder: Embedder, threads: ThreadPool) -> None:
        self._generator = generator
        self._embedder = embedder
        self._threads = threads

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
        clustering = await with_checkpoint(
            self._threads, partial(cluster, request.roles, embedded.vectors, density)
        )
        plane = await self._threads(place, embedded.vectors)
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


PROMPTS = Path(__file__).parent / "prompts"
"""The folder of the service's own prompts."""


class App:
    """The role service.

    Args:
        settings: Default: read from the environment.
    """

    name = RoleSettings.section

    def __init__(self, settings: RoleSettings | None = None) -> None:
        self._settings = settings or RoleSettings()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        """See ``dramaturg.service.installed.App``.

        Raises:
            PromptError: A prompt file cannot be used.
        """
        settings = self._settings
        with closing(ThreadPool(1)) as threads:
            async with open_channel(settings.embedding_target) as embedding:
                embedder = Embedder(EmbeddingServiceStub(embedding), settings.embedding_model)

                def make(asker: Asker, library: PromptLibrary) -> Contract:
                    generator = RoleGenerator(asker, library, settings.excerpts)
                    return _contract(RoleServicer(generator, embedder, threads))

                async with open_model_contract(settings, PROMPTS, make) as contract:
                    yield [contract]


def _contract(servicer: RoleServicer) -> Contract:
    return Contract.make(
        DESCRIPTOR,
        role_service_pb2_grpc.add_RoleServiceServicer_to_server,
        servicer,
        name=servicer.name,
        version=servicer.version,
        description=servicer.description,
        capabilities=servicer.capabilities,
    )
