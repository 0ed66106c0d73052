"""Selects a reference script without a language model: the candidate most similar to all others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

import numpy as np

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_NOT_SUPPORTED
from dramaturg.api.embedding.v1 import embedding_service_pb2_grpc
from dramaturg.judge.steps import ParsedCandidate, parse_candidate
from dramaturg.service.threads import IsStopped, StoppedError, parse, until_cancelled
from services.agents.offline import DESCRIPTION, VERSION
from services.agents.offline.material import Embedded, Embeddings, Pool, read_pool, script_similarities

METHOD = "medoid of the pool"
"""The method in the provenance: the reference is selected, not written."""


class OfflineSynthesizer:
    """A synthesizer that selects the medoid of the pool.

    Args:
        stub: The embedding service.
    """

    name = "offline-synthesize"
    version = VERSION
    description = f"{DESCRIPTION}: chooses the candidate most like the others, writes nothing"
    criteria: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()

    def __init__(self, stub: embedding_service_pb2_grpc.EmbeddingServiceAsyncStub) -> None:
        self._embeddings = Embeddings(stub)

    async def synthesize(self, request: SynthesizeRequest) -> SynthesizeResponse:
        """Selects a reference script. Without a usable candidate the response has the reason.

        Raises:
            ServiceError: The embedding service failed.
        """
        pool = await until_cancelled(
            partial(parse, sum(len(candidate.text) for candidate in request.candidates)),
            _read,
            request.candidates,
        )
        if not pool.scripts:
            return SynthesizeResponse(
                failure=_failure(len(request.candidates)), failure_reason=ABSTAIN_REASON_NOT_SUPPORTED
            )
        embedded = await self._embeddings.embed(pool.steps)
        return await until_cancelled(asyncio.to_thread, _choose, pool, embedded)


def _read(is_stopped: IsStopped, candidates: Iterable[Candidate]) -> Pool:
    def read(candidate: Candidate) -> ParsedCandidate:
        if is_stopped():
            raise StoppedError
        return parse_candidate(candidate)

    return read_pool(map(read, candidates))


def _choose(is_stopped: IsStopped, pool: Pool, embedded: Embedded) -> SynthesizeResponse:
    similarities = script_similarities([embedded.rows(script.steps) for script in pool.scripts], is_stopped)
    # Rounded, so that the pool's order decides ties and not rounding errors.
    medoid = pool.scripts[int(np.argmax(similarities.mean(axis=1).round(5)))]
    return SynthesizeResponse(
        script=Script(steps=[Step(text=step) for step in medoid.steps]),
        pool_ids=sorted(script.id for script in pool.scripts),
        provenance=Provenance(
            parameters={
                "method": METHOD,
                "encoder": embedded.model,
                "pool_size": str(pool.size),
                "pool_left_out": str(pool.left_out),
            }
        ),
    )


def _failure(candidates: int) -> str:
    if not candidates:
        return "Without candidates there is none to choose, and without a language model none can be written."
    return (
        f"None of the {candidates} candidates can be used: they are empty, have no steps that can be told "
        "apart, or are not in Latin script. Without a language model none can be written."
    )
