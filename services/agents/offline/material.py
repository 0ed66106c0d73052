"""A candidate and its pool with their vectors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.judge.abstentions import Abstention, of_failure
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.steps import ParsedCandidate
from dramaturg.service.errors import ServiceError
from services.agents.offline.embeddings import Embedded, Embeddings, Floats
from services.agents.offline.language import UNSUPPORTED, is_latin
from services.agents.offline.pool import Pool, PooledScript, read_pool


@dataclass(frozen=True)
class Material:
    """A candidate, its pool and the vectors of both."""

    candidate: ParsedCandidate
    pool: Pool
    embedded: Embedded

    @property
    def script(self) -> str:
        """The candidate as one text."""
        return whole(self.candidate)

    @property
    def step_vectors(self) -> Floats:
        """The vectors of the candidate's steps, (steps, dimension)."""
        return self.embedded.rows(self.candidate.steps)

    @property
    def pool_step_vectors(self) -> list[Floats]:
        """The vectors of each pooled script's steps, each (steps, dimension)."""
        return [self.embedded.rows(script.steps) for script in self.pool.scripts]

    @property
    def pool_script_vectors(self) -> Floats:
        """The vectors of the whole pooled scripts, (scripts, dimension)."""
        if not self.pool.scripts:
            return np.zeros((0, len(self.embedded.vectors[self.script])), dtype=np.float32)
        return self.embedded.rows([joined(script) for script in self.pool.scripts])


def whole(candidate: ParsedCandidate) -> str:
    """A candidate as one text: its steps without the text around them, or the whole text."""
    return "\n".join(candidate.steps) or candidate.text


def joined(script: PooledScript) -> str:
    """A pooled script as one text."""
    return "\n".join(script.steps)


async def gather(
    item: JudgeItem, embeddings: Embeddings, extra: Iterable[str] = (), *, whole_scripts: bool = False
) -> Material | Abstention:
    """Embeds a candidate and its pool.

    Args:
        item: The candidate and its pool.
        embeddings: The source of vectors.
        extra: Additional texts to embed, for example the goal.
        whole_scripts: Whether scripts are embedded as one text too.

    Returns:
        The material, or the reason why there is none.

    Raises:
        ServiceError: The embedding service fails every request, for example for lack of weights.
    """
    candidate = item.candidate
    extra = list(extra)
    if not is_latin([whole(candidate)]) or not is_latin(extra):
        return Abstention(verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED, UNSUPPORTED)
    pool = read_pool(item.pool)
    texts = [*candidate.steps, *pool.steps, *extra]
    if whole_scripts:
        texts += [whole(candidate), *(joined(script) for script in pool.scripts)]
    try:
        return Material(candidate, pool, await embeddings.embed(texts))
    except ServiceError as error:
        abstention = of_failure(error)
        if abstention is None:
            raise
        return abstention._replace(explanation=f"The steps could not be embedded: {error.message}.")
