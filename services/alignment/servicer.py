"""AlignmentService: decodes, has a thread compute, encodes."""

from __future__ import annotations

from typing import Any

from dramaturg.api.alignment.v1 import accuracy_pb2, agreement_pb2, correlation_pb2, text_pb2
from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceServicer
from services.alignment import accuracy
from services.alignment.agreement import measure as agreement
from services.alignment.codec.accuracy import decode_question, encode_groups
from services.alignment.codec.agreement import decode_annotations, decode_distance, encode_agreement
from services.alignment.codec.correlation import decode_scores, encode_correlations
from services.alignment.codec.estimates import decode_resampling
from services.alignment.codec.text import decode_pairs, encode_report
from services.alignment.correlation.measure import correlate
from services.alignment.text.score import EMBEDDING, chosen, score_texts
from services.alignment.text.similarity import Embedder, NoSimilarity, similarity
from services.alignment.workers import Checkpoint, Workers


class AlignmentServicer(AlignmentServiceServicer):
    """Serves the contract. Requests have up to megabytes, so threads read and write them too.

    Args:
        workers: Where the work is done.
        embedder: Gives sentence vectors; ``None``: there are none.
    """

    def __init__(self, workers: Workers, embedder: Embedder | None) -> None:
        self._workers = workers
        self._embedder = embedder

    async def MeasureAccuracy(
        self, request: accuracy_pb2.MeasureAccuracyRequest, context: Any
    ) -> accuracy_pb2.MeasureAccuracyResponse:
        """See the contract."""
        del context

        def work(checkpoint: Checkpoint) -> accuracy_pb2.MeasureAccuracyResponse:
            question = decode_question(request, checkpoint)
            return encode_groups(accuracy.measure(question, checkpoint), question.policy)

        return await self._workers.run(work)

    async def MeasureAgreement(
        self, request: agreement_pb2.MeasureAgreementRequest, context: Any
    ) -> agreement_pb2.MeasureAgreementResponse:
        """See the contract."""
        del context

        def work(checkpoint: Checkpoint) -> agreement_pb2.MeasureAgreementResponse:
            groups = agreement.measure(
                decode_annotations(request, checkpoint),
                decode_distance(request),
                grouped=bool(request.group_tag),
                resampling=decode_resampling(request, checkpoint),
            )
            return encode_agreement(groups)

        return await self._workers.run(work)

    async def CorrelateScores(
        self, request: correlation_pb2.CorrelateScoresRequest, context: Any
    ) -> correlation_pb2.CorrelateScoresResponse:
        """See the contract."""
        del context

        def work(checkpoint: Checkpoint) -> correlation_pb2.CorrelateScoresResponse:
            human, measures = decode_scores(request, checkpoint)
            return encode_correlations(correlate(human, measures, decode_resampling(request, checkpoint)))

        return await self._workers.run(work)

    async def ScoreText(self, request: text_pb2.ScoreTextRequest, context: Any) -> text_pb2.ScoreTextResponse:
        """See the contract."""
        del context
        names, pairs = chosen(request.metrics), decode_pairs(request)
        if EMBEDDING in names:
            vectors = await similarity((text for pair in pairs for text in pair), self._embedder)
        else:
            vectors = NoSimilarity("it was not asked for")
        return await self._workers.run(
            lambda checkpoint: encode_report(score_texts(pairs, names, vectors, checkpoint))
        )
