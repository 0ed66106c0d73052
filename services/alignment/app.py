"""Application of the alignment service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version

from dramaturg.api.alignment.v1 import alignment_service_pb2, alignment_service_pb2_grpc
from dramaturg.service.channel import open_channel
from dramaturg.service.contract import Contract
from services.alignment.accuracy.groups import MAX_ROWS
from services.alignment.accuracy.metrics import MAX_CELLS
from services.alignment.agreement.alpha import MAX_SETS
from services.alignment.agreement.measure import MAX_GROUPS, MAX_PAIRS
from services.alignment.codec.aggregation import MAX_AGGREGATED_CELLS
from services.alignment.codec.correlation import MAX_MEASURES
from services.alignment.codec.prediction_powered import MAX_SYSTEMS as MAX_PREDICTED_SYSTEMS
from services.alignment.comparison.compare import MAX_COMPARISONS
from services.alignment.embedder import RemoteEmbedder
from services.alignment.preference import MAX_RATED_SYSTEMS
from services.alignment.ranking.rankings import MAX_METHODS, MAX_SYSTEMS
from services.alignment.servicer import AlignmentServicer
from services.alignment.settings import AlignmentSettings
from services.alignment.text.bertscore import BertScoreOptions
from services.alignment.text.score import METRICS
from services.alignment.workers import Workers


class App:
    """The alignment service. Uses EmbeddingService if its address is configured.

    Args:
        settings: Default: read from the environment.
    """

    name = "alignment"

    def __init__(self, settings: AlignmentSettings | None = None) -> None:
        self._settings = settings or AlignmentSettings()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        settings = self._settings
        async with AsyncExitStack() as stack:
            embedder = None
            if settings.embedding_target:
                channel = await stack.enter_async_context(open_channel(settings.embedding_target))
                embedder = RemoteEmbedder(channel, settings.embedding_model)
            workers = Workers(settings.workers, settings.waiting)
            stack.push_async_callback(workers.close)
            options = BertScoreOptions(settings.bertscore_layer, settings.bertscore_baseline)
            yield [_contract(AlignmentServicer(workers, embedder, options))]


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
