"""Servicer of AlignmentService, its threads, and its client of EmbeddingService."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any, TypeVar

import grpc
import numpy as np

from dramaturg.api.alignment.v1 import (
    accuracy_pb2,
    aggregation_pb2,
    agreement_pb2,
    alignment_service_pb2,
    alignment_service_pb2_grpc,
    bias_pb2,
    calibration_pb2,
    compare_pb2,
    correlation_pb2,
    plan_pb2,
    prediction_powered_pb2,
    preference_pb2,
    ranking_pb2,
    text_pb2,
)
from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceServicer
from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.embedding.v1.embedding_service_pb2 import (
    EmbedRequest,
    EmbedTokensRequest,
    TokenEmbeddings,
)
from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceStub
from dramaturg.service.channel import open_channel
from dramaturg.service.contract import Contract
from dramaturg.service.errors import from_rpc_error
from dramaturg.service.threads import Checkpoint, with_checkpoint
from services.alignment import bias, preference
from services.alignment.accuracy import metrics as accuracy
from services.alignment.accuracy.metrics import MAX_CELLS, MAX_ROWS
from services.alignment.aggregation import aggregate, diagnose
from services.alignment.agreement import measure as agreement
from services.alignment.agreement.annotations import list_majorities
from services.alignment.agreement.coefficients import MAX_SETS
from services.alignment.agreement.measure import MAX_GROUPS, MAX_PAIRS
from services.alignment.app import AlignmentSettings
from services.alignment.calibration import calibrate
from services.alignment.codec.estimates import decode_level, decode_resampling
from services.alignment.codec.people import (
    DEFAULT_ITERATIONS,
    MAX_AGGREGATED_CELLS,
    decode_accuracy_design,
    decode_annotations,
    decode_distance,
    decode_epsilon,
    decode_majority_rule,
    decode_votes,
    encode_aggregation,
    encode_agreement,
)
from services.alignment.codec.scores import (
    MAX_MEASURES,
    check_judged_pairs,
    decode_design,
    decode_groups,
    decode_judgements,
    decode_levels,
    decode_pairs,
    decode_predictions,
    decode_scores,
    encode_report,
    plan_study,
)
from services.alignment.codec.scores import MAX_SYSTEMS as MAX_PREDICTED_SYSTEMS
from services.alignment.codec.systems import (
    decode_preferences,
    decode_ranking,
    decode_runs,
    reference_weight,
)
from services.alignment.comparison.compare import MAX_COMPARISONS, compare
from services.alignment.correlation.measure import correlate
from services.alignment.errors import overloaded
from services.alignment.prediction_powered import estimate_means
from services.alignment.preference import MAX_RATED_SYSTEMS
from services.alignment.ranking import MAX_METHODS, MAX_SYSTEMS, rank
from services.alignment.text.bertscore import DEFAULT_OPTIONS, BertScoreOptions
from services.alignment.text.metric import (
    Embedded,
    EmbeddedTokens,
    Embedder,
    EmbeddingError,
    Matrix,
    TooManyTokensError,
)
from services.alignment.text.score import METRICS, chosen, score_texts, vector_metrics

Response = TypeVar("Response")


class RemoteEmbedder:
    """Asks EmbeddingService.

    Args:
        channel: A channel to it.
        model: The model; empty for its default.
    """

    def __init__(self, channel: grpc.aio.Channel, model: str) -> None:
        self._stub = EmbeddingServiceStub(channel)
        self._model = model

    async def embed(self, texts: Sequence[str]) -> Embedded:
        response = await _answer(self._stub.Embed(EmbedRequest(texts=texts, model=self._model)))
        _require(len(response.embeddings) == len(texts), f"vectors for {len(response.embeddings)}", texts)
        return Embedded(
            [np.array(one.values, np.float32) for one in response.embeddings],
            sum(one.truncated for one in response.embeddings),
            response.model,
        )

    async def embed_tokens(self, texts: Sequence[str], layer: int | None = None) -> EmbeddedTokens:
        request = EmbedTokensRequest(
            texts=texts, model=self._model, layer=layer or 0, with_special_tokens=layer is not None
        )
        response = await _answer(self._stub.EmbedTokens(request))
        _require(len(response.texts) == len(texts), f"tokens of {len(response.texts)}", texts)
        matrices = []
        for text in response.texts:
            matrices.append(_matrix(text, response.dimension))
            # A text's numbers take milliseconds: other calls get their turn between.
            await asyncio.sleep(0)
        if layer and response.layer != layer:
            raise EmbeddingError(f"EmbeddingService gave no vectors of layer {layer}")
        return EmbeddedTokens(
            matrices,
            [text.truncated for text in response.texts],
            response.model,
            response.layer,
            [text.tokens for text in response.texts],
            [(text.leading_special_count, text.trailing_special_count) for text in response.texts],
        )


async def _answer(call: Awaitable[Response]) -> Response:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        failure = from_rpc_error(error)
        large = failure.reason == error_reason_pb2.ERROR_REASON_TOO_LARGE
        kind = TooManyTokensError if large else EmbeddingError
        raise kind(f"EmbeddingService failed with {failure.code.name}: {failure.message}") from error


def _matrix(text: TokenEmbeddings, dimension: int) -> Matrix:
    count = len(text.tokens)
    if len(text.values) != count * dimension:
        raise EmbeddingError(
            f"EmbeddingService gave {len(text.values)} numbers for {count} tokens of {dimension} each"
        )
    # Three times as fast as np.array.
    return np.fromiter(text.values, np.float32, len(text.values)).reshape(count, dimension)


def _require(met: bool, what: str, texts: Sequence[str]) -> None:
    if not met:
        raise EmbeddingError(f"EmbeddingService gave {what} texts instead of {len(texts)}")


class Workers:
    """A bounded pool of threads.

    Threads suffice: numpy and scipy release the interpreter lock in long operations, and large requests need
    not be copied to another process.

    Args:
        workers: The maximum number of concurrent functions.
        waiting: The maximum number of waiting functions; further ones are refused.
    """

    def __init__(self, workers: int, waiting: int) -> None:
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="alignment")
        self._limit = workers + waiting
        self._taken = 0

    async def run(self, work: Callable[[Checkpoint], Response]) -> Response:
        """Runs ``work`` in a thread; it calls the given checkpoint between chunks.

        If this call is cancelled, the work stops at its next checkpoint and then releases its thread.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_OVERLOADED): the queue is full.
        """
        if self._taken >= self._limit:
            raise overloaded(self._limit)
        return await with_checkpoint(self._in_thread, work)

    async def _in_thread(self, call: Callable[[], Response]) -> Response:
        loop = asyncio.get_running_loop()
        future = self._executor.submit(call)
        self._taken += 1
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._release))
        return await asyncio.wrap_future(future)

    def _release(self) -> None:
        self._taken -= 1

    async def close(self) -> None:
        """Waits for running work to end."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._executor.shutdown)


class AlignmentServicer(AlignmentServiceServicer):
    """Serves the contract. Requests may have megabytes, so they are also decoded and encoded in threads.

    Args:
        workers: The threads.
        embedder: The source of vectors; ``None``: metrics of vectors are undefined.
        options: How BERTScore is computed.
    """

    def __init__(
        self, workers: Workers, embedder: Embedder | None, options: BertScoreOptions = DEFAULT_OPTIONS
    ) -> None:
        self._workers = workers
        self._embedder = embedder
        self._options = options

    async def MeasureAccuracy(
        self, request: accuracy_pb2.MeasureAccuracyRequest, context: Any
    ) -> accuracy_pb2.MeasureAccuracyResponse:
        del context

        def work(checkpoint: Checkpoint) -> accuracy_pb2.MeasureAccuracyResponse:
            design = decode_accuracy_design(request, checkpoint)
            groups = accuracy.measure(design)
            return accuracy_pb2.MeasureAccuracyResponse(groups=groups, abstention_policy=design.policy)

        return await self._workers.run(work)

    async def MeasureAgreement(
        self, request: agreement_pb2.MeasureAgreementRequest, context: Any
    ) -> agreement_pb2.MeasureAgreementResponse:
        del context

        def work(checkpoint: Checkpoint) -> agreement_pb2.MeasureAgreementResponse:
            annotations, rule = decode_annotations(request, checkpoint), decode_majority_rule(request)
            groups = agreement.measure(
                annotations,
                decode_distance(request),
                grouped=bool(request.group_tag),
                resampling=decode_resampling(request, checkpoint),
                rule=rule,
                judge=request.judge,
                epsilon=decode_epsilon(request),
            )
            if not request.list_majorities:
                return encode_agreement(groups, [], [])
            return encode_agreement(groups, annotations.items, list_majorities(annotations, rule))

        return await self._workers.run(work)

    async def CorrelateScores(
        self, request: correlation_pb2.CorrelateScoresRequest, context: Any
    ) -> correlation_pb2.CorrelateScoresResponse:
        del context

        def work(checkpoint: Checkpoint) -> correlation_pb2.CorrelateScoresResponse:
            human, measures = decode_scores(request, checkpoint)
            levels, (names, group) = decode_levels(request), decode_groups(request)
            resampling = decode_resampling(request, checkpoint)
            found = correlate(human, measures, resampling, levels)
            for code, name in enumerate(names):
                items = np.flatnonzero(group == code)
                inside = {measure: series.among(items) for measure, series in measures.items()}
                part = correlate(human[items], inside, resampling, levels.at(items))
                found.groups.add(group=name, measures=part.measures, differences=part.differences)
            return found

        return await self._workers.run(work)

    async def CompareRuns(
        self, request: compare_pb2.CompareRunsRequest, context: Any
    ) -> compare_pb2.CompareRunsResponse:
        del context

        def work(checkpoint: Checkpoint) -> compare_pb2.CompareRunsResponse:
            runs, design = decode_runs(request, checkpoint)
            return compare(runs, design)

        return await self._workers.run(work)

    async def RankSystems(
        self, request: ranking_pb2.RankSystemsRequest, context: Any
    ) -> ranking_pb2.RankSystemsResponse:
        del context

        def work(checkpoint: Checkpoint) -> ranking_pb2.RankSystemsResponse:
            design = decode_ranking(request, checkpoint)
            return rank(design, decode_resampling(request, checkpoint))

        return await self._workers.run(work)

    async def MeasureCalibration(
        self, request: calibration_pb2.MeasureCalibrationRequest, context: Any
    ) -> calibration_pb2.MeasureCalibrationResponse:
        del context

        def work(checkpoint: Checkpoint) -> calibration_pb2.MeasureCalibrationResponse:
            design = decode_design(request, checkpoint)
            return calibrate(*decode_judgements(request, checkpoint), design)

        return await self._workers.run(work)

    async def MeasurePairBias(
        self, request: bias_pb2.MeasurePairBiasRequest, context: Any
    ) -> bias_pb2.MeasurePairBiasResponse:
        del context

        def work(checkpoint: Checkpoint) -> bias_pb2.MeasurePairBiasResponse:
            check_judged_pairs(request, checkpoint)
            level = decode_level(request)
            return bias.measure(request.pairs, request.judge_family, request.group_tag, level, checkpoint)

        return await self._workers.run(work)

    async def EstimateMeans(
        self, request: prediction_powered_pb2.EstimateMeansRequest, context: Any
    ) -> prediction_powered_pb2.EstimateMeansResponse:
        del context

        def work(checkpoint: Checkpoint) -> prediction_powered_pb2.EstimateMeansResponse:
            weight = request.tuning_parameter if request.HasField("tuning_parameter") else None
            systems = decode_predictions(request, checkpoint)
            level = decode_level(request)
            return estimate_means(systems, request.baseline, level, weight, checkpoint)

        return await self._workers.run(work)

    async def MeasurePreferences(
        self, request: preference_pb2.MeasurePreferencesRequest, context: Any
    ) -> preference_pb2.MeasurePreferencesResponse:
        del context

        def work(checkpoint: Checkpoint) -> preference_pb2.MeasurePreferencesResponse:
            found = preference.measure(
                decode_preferences(request, checkpoint),
                request.baseline,
                decode_resampling(request, checkpoint),
                adjust_position=request.adjust_position,
                references=frozenset(request.reference_systems),
                reference_weight=reference_weight(request),
            )
            found.abstained_count = sum(not pair.HasField("preference") for pair in request.pairs)
            return found

        return await self._workers.run(work)

    async def AggregateLabels(
        self, request: aggregation_pb2.AggregateLabelsRequest, context: Any
    ) -> aggregation_pb2.AggregateLabelsResponse:
        del context

        def work(checkpoint: Checkpoint) -> aggregation_pb2.AggregateLabelsResponse:
            votes = decode_votes(request, checkpoint)
            dependence = diagnose(votes.item, votes.annotator, votes.label, votes.annotators, checkpoint)
            iterations = request.iteration_count or DEFAULT_ITERATIONS
            found = None
            if not dependence.unidentified:
                found = aggregate(votes, dependence.weights, iterations, checkpoint)
            return encode_aggregation(request, votes, dependence, found)

        return await self._workers.run(work)

    async def PlanStudy(self, request: plan_pb2.PlanStudyRequest, context: Any) -> plan_pb2.PlanStudyResponse:
        del context
        return plan_study(request)

    async def ScoreText(self, request: text_pb2.ScoreTextRequest, context: Any) -> text_pb2.ScoreTextResponse:
        del context
        names, pairs = chosen(request.metrics), decode_pairs(request)
        metrics = await vector_metrics(names, pairs, self._embedder, self._workers.run, self._options)
        return await self._workers.run(
            lambda checkpoint: encode_report(score_texts(pairs, names, metrics, checkpoint))
        )


@asynccontextmanager
async def open_contract(settings: AlignmentSettings) -> AsyncIterator[Contract]:
    """Yields the contract of the service, and stops its workers at the end."""
    async with AsyncExitStack() as stack:
        embedder = None
        if settings.embedding_target:
            channel = await stack.enter_async_context(open_channel(settings.embedding_target))
            embedder = RemoteEmbedder(channel, settings.embedding_model)
        workers = Workers(settings.workers, settings.waiting)
        stack.push_async_callback(workers.close)
        options = BertScoreOptions(settings.bertscore_layer, settings.bertscore_baseline)
        yield _contract(AlignmentServicer(workers, embedder, options))


def _contract(servicer: AlignmentServicer) -> Contract:
    return Contract.make(
        alignment_service_pb2.DESCRIPTOR.services_by_name["AlignmentService"],
        alignment_service_pb2_grpc.add_AlignmentServiceServicer_to_server,
        servicer,
        name="alignment",
        version=version("dramaturg"),
        description=(
            "Accuracy, agreement, correlation with people, comparisons, rankings, calibration, bias, and "
            "text-overlap baselines."
        ),
        capabilities=METRICS,
        limits={
            "accuracy_rows": MAX_ROWS,
            "aggregated_cells": MAX_AGGREGATED_CELLS,
            "agreement_groups": MAX_GROUPS,
            "annotator_pairs": MAX_PAIRS,
            "comparisons": MAX_COMPARISONS,
            "confusion_cells": MAX_CELLS,
            "label_sets": MAX_SETS,
            "measures": MAX_MEASURES,
            "rated_systems": MAX_RATED_SYSTEMS,
            "predicted_systems": MAX_PREDICTED_SYSTEMS,
            "ranked_systems": MAX_SYSTEMS,
            "ranking_methods": MAX_METHODS,
        },
    )
