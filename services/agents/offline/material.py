"""A candidate and the other candidates of its task, with their vectors and their support of its steps."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import grpc
import numpy as np
import scipy
from numpy.typing import NDArray

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.embedding.v1 import embedding_service_pb2_grpc
from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest
from dramaturg.judge.abstentions import Abstention, of_failure
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.steps import ParsedCandidate, is_blank
from dramaturg.service.errors import ServiceError, downstream
from dramaturg.service.threads import IsStopped, StoppedError

Floats: TypeAlias = NDArray[np.float32]

SERVICE = "embedding"
"""The name of the dependency in errors."""

_TEXTS_PER_CALL = 2048
_CHARACTERS_PER_CALL = 2_000_000
_CHARACTERS_READ = 20_000
"""The maximum length of a text in characters. The encoder's window is a few hundred word pieces."""


@dataclass(frozen=True)
class Embedded:
    """The vectors of some texts."""

    vectors: Mapping[str, Floats]
    """Unit vectors, (dimension,), by text."""
    truncated: frozenset[str]
    """The texts that the encoder truncated."""
    model: str
    """The encoder."""

    def rows(self, texts: Sequence[str]) -> Floats:
        """The vectors of several texts, (texts, dimension)."""
        return np.stack([self.vectors[text] for text in texts])


class Embeddings:
    """Turns texts into vectors.

    Args:
        stub: The embedding service.
    """

    def __init__(self, stub: embedding_service_pb2_grpc.EmbeddingServiceAsyncStub) -> None:
        self._stub = stub

    async def embed(self, texts: Iterable[str]) -> Embedded:
        """Embeds texts, each once.

        Raises:
            ServiceError: The service failed (see ``dramaturg.service.errors.downstream``).
        """
        vectors: dict[str, Floats] = {}
        truncated: set[str] = set()
        model = ""
        for part in _parts(dict.fromkeys(texts)):
            try:
                response = await self._stub.Embed(
                    EmbedRequest(texts=[text[:_CHARACTERS_READ] for text in part])
                )
            except grpc.aio.AioRpcError as error:
                raise downstream(error, SERVICE) from error
            model = response.model
            for text, embedding in zip(part, response.embeddings, strict=True):
                vectors[text] = np.fromiter(embedding.values, dtype=np.float32, count=len(embedding.values))
                if embedding.truncated or len(text) > _CHARACTERS_READ:
                    truncated.add(text)
        return Embedded(vectors, frozenset(truncated), model)


def _parts(texts: Iterable[str]) -> Iterator[list[str]]:
    part: list[str] = []
    room = _CHARACTERS_PER_CALL
    for text in texts:
        size = min(len(text), _CHARACTERS_READ)
        if part and (len(part) == _TEXTS_PER_CALL or size > room):
            yield part
            part, room = [], _CHARACTERS_PER_CALL
        part.append(text)
        room -= size
    if part:
        yield part


UNSUPPORTED = (
    "The text is mostly not in Latin script, and the sentence encoder was trained on English: "
    "its similarities mean nothing here."
)

_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")


def is_latin(texts: Iterable[str]) -> bool:
    """Whether at least half of the letters are Latin; true where there are no letters.

    Letters do not distinguish English from other languages in Latin script, so this condition is necessary
    but not sufficient: the encoder is weaker on French than on English.
    """
    latin = letters = 0
    for text in texts:
        letters += sum(character.isalpha() for character in text)
        latin += len(_LATIN.findall(text))
    return 2 * latin >= letters


MAX_STEPS = 4000
"""The maximum number of steps of a consensus: 200 scripts of 20 steps. Similarities of all pairs are
computed, so time and memory grow with the square."""


@dataclass(frozen=True)
class PooledScript:
    """A candidate with steps."""

    id: str
    steps: tuple[str, ...]
    """The steps: at least one, none blank."""


@dataclass(frozen=True)
class Pool:
    """The usable candidates, in an order independent of the request."""

    scripts: tuple[PooledScript, ...]
    left_out: int
    """The number of unusable candidates: empty, without steps, not in Latin script, or over the limit."""

    @property
    def size(self) -> int:
        """The number of usable candidates."""
        return len(self.scripts)

    @property
    def steps(self) -> list[str]:
        """All steps of all scripts, one script after the other."""
        return [step for script in self.scripts for step in script.steps]


def read_pool(candidates: Iterable[ParsedCandidate]) -> Pool:
    """Reads a pool.

    Over the limit, whole scripts are omitted, selected by the hash of their content.

    Args:
        candidates: The pool.
    """
    scripts = []
    total = 0
    for candidate in candidates:
        total += 1
        steps = tuple(step for step in candidate.steps if not is_blank(step))
        if steps and is_latin(steps):
            scripts.append(PooledScript(candidate.id, steps))
    kept = []
    room = MAX_STEPS
    for script in sorted(scripts, key=_by_content):
        if len(script.steps) <= room:
            kept.append(script)
            room -= len(script.steps)
    return Pool(tuple(kept), total - len(kept))


def _by_content(script: PooledScript) -> tuple[bytes, str]:
    content = "\n".join(script.steps).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).digest(), script.id


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


def best_matches(steps: Floats, scripts: Sequence[Floats]) -> Floats:
    """The similarity of each step to the nearest step of each script.

    Args:
        steps: Unit vectors, (steps, dimension).
        scripts: Unit vectors of each script's steps, each (its steps, dimension) and not empty.

    Returns:
        Cosines, (steps, scripts).
    """
    if not scripts:
        return np.zeros((len(steps), 0), dtype=np.float32)
    starts = np.cumsum([0, *(len(script) for script in scripts[:-1])])
    nearest: Floats = np.maximum.reduceat(steps @ np.concatenate(scripts).T, starts, axis=1)
    return nearest


def support(steps: Floats, scripts: Sequence[Floats]) -> Floats:
    """The support of each step: its best match in each script, averaged over the scripts, (steps,)."""
    return np.asarray(best_matches(steps, scripts).mean(axis=1), dtype=np.float32)


def script_similarities(
    scripts: Sequence[Floats], is_stopped: IsStopped = lambda: False
) -> NDArray[np.float64]:
    """The similarity of each pair of scripts, (scripts, scripts), symmetric, 1 on the diagonal.

    Steps are matched one to one with the maximum sum of cosines (linear assignment), and normalised like
    Dice's coefficient: twice the sum over the number of steps of both. Therefore an incomplete script is less
    similar, which matching each step with its nearest would not show.

    Args:
        scripts: Unit vectors of each script's steps, each (its steps, dimension) and not empty.
        is_stopped: Called before each pair; the computation ends once it returns True.

    Raises:
        StoppedError: It returned True.
    """
    similarity = np.eye(len(scripts))
    for row, column in itertools.combinations(range(len(scripts)), 2):
        if is_stopped():
            raise StoppedError
        first, second = scripts[row], scripts[column]
        cosines = np.maximum(first @ second.T, 0)
        matched = cosines[scipy.optimize.linear_sum_assignment(cosines, maximize=True)].sum()
        similarity[row, column] = similarity[column, row] = 2 * matched / (len(first) + len(second))
    return similarity
