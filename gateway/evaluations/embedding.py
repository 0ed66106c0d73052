"""The vectors of texts, from the embedding service of an assignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_TIMED_OUT
from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest, EmbedResponse
from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceStub
from dramaturg.embedding import EmbedFailure, TextVectors, embed_texts
from gateway.evaluations.calls import ask
from gateway.evaluations.failures import Failure
from gateway.evaluations.scope import EvaluationScope
from gateway.judges.selection import JudgeAssignment


async def embed_by(assignment: JudgeAssignment, scope: EvaluationScope, texts: Sequence[str]) -> TextVectors:
    """Embeds texts within the time left. A service with a timeout of its own has it in every call.

    Args:
        assignment: The embedding service.
        scope: What the calls of the evaluation share.
        texts: The texts.
    """
    stub = EmbeddingServiceStub(assignment.judge.channel)

    # A repeated call that succeeds leaves nothing for which the evaluation would be repeated.
    repeated = replace(scope, failures=[])

    async def embed(request: EmbedRequest, factor: float) -> EmbedResponse | EmbedFailure:
        longer = replace(repeated, timeouts=replace(scope.timeouts, judge=factor * scope.timeouts.judge))
        answer = await ask(assignment, longer, stub.Embed, request, EmbedResponse)
        if isinstance(answer, Failure):
            return EmbedFailure(answer.explanation, answer.reason == ABSTAIN_REASON_TIMED_OUT)
        return answer

    found = await embed_texts(embed, texts, assignment.model)
    if found.failure:
        scope.failures.extend(repeated.failures)
    return found
