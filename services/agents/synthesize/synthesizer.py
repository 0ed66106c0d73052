"""The synthesizer: writes a reference script from the pool of all candidates (ABSEval, section 3.2)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step
from dramaturg.judge import VERSION, roles
from dramaturg.judge.answers import StepsForm
from dramaturg.judge.contracts import synthesize_contract
from dramaturg.judge.excerpts import Excerpt, ExcerptLimits, constraints_excerpt, goal_excerpt, pooled_excerpt
from dramaturg.judge.llm import ANSWER_PLACEHOLDER, Asker
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.protocols import CALLS_MODELS
from dramaturg.judge.spec import JudgeSpec, OfflineSettings
from dramaturg.judge.steps import ParsedCandidate, parse_candidate
from dramaturg.service.contract import Contract

if TYPE_CHECKING:
    from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceAsyncStub

_GOAL, _CONSTRAINTS, _EXAMPLES = "goal", "constraints", "examples"


class LlmSynthesizer:
    """Writes a script from the pool, or from the task alone.

    Args:
        asker: Asks the model.
        library: The prompts.
        limits: The maximum lengths of the parts of a request in the prompt.
    """

    name: str = "llm-synthesize"
    version: str = VERSION
    description: str = "Has a language model write a reference script, learning from all candidates."
    criteria: Sequence[str] = ()
    capabilities: Sequence[str] = (CALLS_MODELS,)

    def __init__(self, asker: Asker, library: PromptLibrary, limits: ExcerptLimits) -> None:
        fixed = (ANSWER_PLACEHOLDER,)
        self._pooling = library.load("synthesize", fixed=fixed, content=(_GOAL, _CONSTRAINTS, _EXAMPLES))
        self._alone = library.load("synthesize_alone", fixed=fixed, content=(_GOAL, _CONSTRAINTS))
        self._asker = asker
        self._limits = limits

    async def synthesize(self, request: SynthesizeRequest) -> SynthesizeResponse:
        """Writes a reference script. For an unusable answer the response has the reason.

        Raises:
            ServiceError: The call to the model failed.
        """
        pool = draw_pool(request.candidates, self._limits)
        excerpts = {
            _GOAL: goal_excerpt(request.task, self._limits),
            _CONSTRAINTS: constraints_excerpt(request.task, self._limits),
            _EXAMPLES: pool.excerpt,
        }
        answer = await self._asker.ask(
            self._pooling if pool.ids else self._alone,
            {name: excerpt.text for name, excerpt in excerpts.items()},
            StepsForm(),
            request.options,
        )
        for excerpt in excerpts.values():
            answer.provenance.parameters.update(excerpt.parameters)
        return SynthesizeResponse(
            script=Script(steps=[Step(text=step) for step in answer.value or ()]),
            failure=answer.abstention.explanation if answer.abstention else "",
            failure_reason=answer.abstention.reason
            if answer.abstention
            else verdict_pb2.ABSTAIN_REASON_UNSPECIFIED,
            pool_ids=pool.ids,
            provenance=answer.provenance,
        )


@dataclass(frozen=True)
class Pool:
    """The candidates in the prompt."""

    ids: tuple[str, ...]
    """Their ids, sorted. All ids of equal candidates are listed, although only one is shown."""
    excerpt: Excerpt
    """The excerpts of the candidates, labelled by number, without their writers."""


def draw_pool(candidates: Iterable[Candidate], limits: ExcerptLimits) -> Pool:
    """Selects the pool from the candidates of a task.

    Empty candidates are omitted, and equal ones are shown once. The order is that of their hashes, so that
    equal pools make equal prompts and no writer has a fixed place. Candidates that exceed the rest of
    ``limits.pool`` are omitted; only a first candidate that exceeds the whole limit is truncated.
    """
    groups: dict[str, list[ParsedCandidate]] = {}
    for read in map(parse_candidate, candidates):
        if read.reading != verdict_pb2.READING_EMPTY:
            groups.setdefault(_hash(read), []).append(read)
    ids: list[str] = []
    excerpts: list[Excerpt] = []
    remaining = limits.pool
    for _, equals in sorted(groups.items()):
        length = sum(map(len, _content(equals[0])))
        if excerpts and length > remaining:
            continue
        remaining -= length
        ids += [read.id for read in equals]
        excerpts.append(pooled_excerpt(len(excerpts) + 1, equals[0], limits))
    fences = tuple(fenced for excerpt in excerpts for fenced in excerpt.fences)
    return Pool(tuple(sorted(ids)), Excerpt(fences))


def _content(read: ParsedCandidate) -> tuple[str, ...]:
    return read.steps or (read.text,)


def _hash(read: ParsedCandidate) -> str:
    digest = hashlib.sha256()
    for part in _content(read):
        # The length prefix distinguishes ("ab", "c") from ("a", "bc").
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def _offline(embeddings: EmbeddingServiceAsyncStub) -> Contract:
    from services.agents.synthesize.offline import OfflineSynthesizer

    return synthesize_contract(OfflineSynthesizer(embeddings))


SPEC = JudgeSpec(
    role=roles.SYNTHESIZE,
    prompts=Path(__file__).parent / "prompts",
    settings=OfflineSettings,
    llm=lambda model: synthesize_contract(
        LlmSynthesizer(model.asker, model.library, model.settings.excerpts)
    ),
    offline=_offline,
)
