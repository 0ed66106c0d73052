"""The critic without a language model: duplicates by wording and similarity, other faults by a large pool."""

from __future__ import annotations

import asyncio

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Finding, Verdict
from dramaturg.api.embedding.v1 import embedding_service_pb2_grpc
from dramaturg.judge import roles, verdicts
from dramaturg.judge.abstentions import Abstention
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.criteria import NO_DUPLICATE_STEPS, NO_MISSING_STEPS, NO_REDUNDANT_STEPS
from dramaturg.judge.protocols import USES_POOL
from dramaturg.judge.steps import ParsedCandidate
from services.agents.offline import DESCRIPTION, VERSION, screens
from services.agents.offline.material import Embeddings, Material, gather
from services.agents.offline.screens import (
    Repetition,
    grouped,
    repeated_meanings,
    repeated_wordings,
    screen_support,
    uncovered_consensus,
)
from services.agents.offline.wording import quote, quote_all

_NO_STEPS = "No steps could be told apart in the candidate."


class OfflineCritic:
    """A judge for the role "critic" by similarity to the pool.

    Args:
        stub: The embedding service.
    """

    name = "offline-critic"
    version = VERSION
    description = DESCRIPTION
    criteria = roles.CRITIC.criteria
    capabilities = (USES_POOL,)

    def __init__(self, stub: embedding_service_pb2_grpc.EmbeddingServiceAsyncStub) -> None:
        self._embeddings = Embeddings(stub)

    async def judge(self, item: JudgeItem) -> Assessment:
        """Judges missing, redundant and duplicate steps.

        Raises:
            ServiceError: The embedding service fails every request, for example for lack of weights.
        """
        candidate = item.candidate
        if not candidate.steps:
            return Assessment(
                verdicts=[
                    verdicts.abstained(criterion, verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED, _NO_STEPS)
                    for criterion in self.criteria
                ]
            )
        material = await gather(item, self._embeddings)
        if isinstance(material, Abstention):
            return Assessment(verdicts=_without_vectors(candidate, material))
        return await asyncio.to_thread(_judge, material)


def _judge(material: Material) -> Assessment:
    return Assessment(
        verdicts=[_missing(material), _redundant(material), _duplicate(material)],
        provenance=Provenance(
            parameters={
                "encoder": material.embedded.model,
                "pool_size": str(material.pool.size),
                "pool_left_out": str(material.pool.left_out),
                "duplicate_similarity": str(screens.DUPLICATE_SIMILARITY),
                "possible_duplicate_similarity": str(screens.POSSIBLE_DUPLICATE_SIMILARITY),
                "redundant_min_pool": str(screens.REDUNDANT_MIN_POOL),
                "redundant_percentile": str(screens.REDUNDANT_PERCENTILE),
                "redundant_margin": str(screens.REDUNDANT_MARGIN),
                "missing_min_pool": str(screens.MISSING_MIN_POOL),
                "consensus_similarity": str(screens.CONSENSUS_SIMILARITY),
                "consensus_share": str(screens.CONSENSUS_SHARE),
            }
        ),
    )


def _missing(material: Material) -> Verdict:
    size = material.pool.size
    rationale = "Whether a step is missing cannot be told without a language model."
    if size < screens.MISSING_MIN_POOL:
        rationale += f" The pool has {size} usable scripts, too few for a consensus."
    elif named := uncovered_consensus(material.step_vectors, material.pool_step_vectors):
        steps = material.pool.steps
        rationale += (
            f" Most of the {size} other scripts have steps like these, and this one has none like them: "
            f"{quote_all(steps[index] for index in named)}."
        )
    else:
        rationale += f" Nothing that most of the {size} other scripts have was found to be absent."
    return verdicts.abstained(NO_MISSING_STEPS, verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED, rationale)


def _redundant(material: Material) -> Verdict:
    size = material.pool.size
    if size < screens.REDUNDANT_MIN_POOL:
        return verdicts.abstained(
            NO_REDUNDANT_STEPS,
            verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED,
            f"The pool has {size} usable scripts; at least {screens.REDUNDANT_MIN_POOL} are needed.",
        )
    screen = screen_support(material.step_vectors, material.pool_step_vectors)
    step = quote(material.candidate.steps[screen.weakest])
    measured = (
        f"The least supported step is {step}: support {screen.support:.2f} by {size} other scripts, "
        f"threshold {screen.threshold:.2f}."
    )
    if not screen.unsupported:
        return verdicts.abstained(
            NO_REDUNDANT_STEPS,
            verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED,
            f"{measured} That no step stands out does not show that every step is needed.",
        )
    finding = verdicts.finding(
        verdict_pb2.FINDING_KIND_REDUNDANT_STEP,
        f"Nothing like {step} is in the other scripts.",
        steps=[screen.weakest],
    )
    return verdicts.failed(NO_REDUNDANT_STEPS, [finding], rationale=measured)


def _duplicate(material: Material) -> Verdict:
    steps = material.candidate.steps
    near = repeated_meanings(steps, material.embedded)
    certain = grouped([*repeated_wordings(steps), *(pair for pair in near if not pair.doubt)])
    possible = [pair for pair in near if pair.doubt]
    if certain:
        return _repeats(steps, certain)
    if possible:
        pair = possible[0]
        others = f", and {len(possible) - 1} pairs more" if len(possible) > 1 else ""
        return verdicts.abstained(
            NO_DUPLICATE_STEPS,
            verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE,
            f"{quote_all(steps[index] for index in pair.steps)} may say the same "
            f"(cosine {pair.similarity:.2f}, {pair.doubt}){others}.",
        )
    return verdicts.passed(
        NO_DUPLICATE_STEPS,
        rationale="No two steps have the same wording, and no two are nearer than a cosine of "
        f"{screens.POSSIBLE_DUPLICATE_SIMILARITY}. A paraphrase in quite other words would go unseen.",
    )


def _repeats(steps: tuple[str, ...], repetitions: list[Repetition]) -> Verdict:
    return verdicts.failed(
        NO_DUPLICATE_STEPS,
        [_finding(steps, repetition) for repetition in repetitions],
        rationale="Steps of the same wording say the same, and so do steps of the same words of content that "
        f"are nearer than a cosine of {screens.DUPLICATE_SIMILARITY}.",
    )


def _finding(steps: tuple[str, ...], repetition: Repetition) -> Finding:
    same = repetition.similarity == 1.0
    how = "are worded the same" if same else f"say the same (cosine {repetition.similarity:.2f})"
    return verdicts.finding(
        verdict_pb2.FINDING_KIND_DUPLICATE_STEP,
        f"{quote_all(steps[index] for index in repetition.steps)} {how}.",
        steps=repetition.steps,
    )


def _without_vectors(candidate: ParsedCandidate, abstention: Abstention) -> list[Verdict]:
    """Judges repeated wordings, which need no vectors, and abstains from the rest."""
    rest = [
        verdicts.abstained(criterion, abstention.reason, abstention.explanation)
        for criterion in (NO_MISSING_STEPS, NO_REDUNDANT_STEPS)
    ]
    repeated = repeated_wordings(candidate.steps)
    if repeated:
        return [*rest, _repeats(candidate.steps, repeated)]
    explanation = f"No two steps have the same wording. {abstention.explanation}"
    return [*rest, verdicts.abstained(NO_DUPLICATE_STEPS, abstention.reason, explanation)]
