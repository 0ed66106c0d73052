"""Messages of CorrelateScores."""

from __future__ import annotations

from array import array

import numpy as np

from dramaturg.api.alignment.v1 import correlation_pb2 as pb
from services.alignment.bootstrap import Array
from services.alignment.codec.estimates import encode_estimate
from services.alignment.correlation.measure import CorrelationDifference, Correlations, Series
from services.alignment.errors import too_large
from services.alignment.workers import Checkpoint

MAX_MEASURES = 200
"""The maximum number of distinct measures of a request; every two are compared."""
_CHUNK = 10_000


def decode_scores(
    request: pb.CorrelateScoresRequest, checkpoint: Checkpoint
) -> tuple[Array, dict[str, Series]]:
    """Reads people's scores and those of the measures, by name.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): there are more than ``MAX_MEASURES``.
    """
    human = array("d")
    columns: dict[str, tuple[array[int], array[float]]] = {}
    for index, item in enumerate(request.items):
        if index % _CHUNK == 0:
            checkpoint()
        human.append(item.human)
        for name, score in item.scores.items():
            if name not in columns:
                columns[name] = array("q"), array("d")
                if len(columns) > MAX_MEASURES:
                    raise too_large("measures", limit=MAX_MEASURES, actual=len(columns))
            items, values = columns[name]
            items.append(index)
            values.append(score)
    measures = {
        name: Series(np.array(items, np.intp), np.array(values, np.float64))
        for name, (items, values) in columns.items()
    }
    return np.array(human, np.float64), measures


def encode_correlations(correlations: Correlations) -> pb.CorrelateScoresResponse:
    return pb.CorrelateScoresResponse(
        measures=[
            pb.MeasureCorrelation(
                measure=one.measure,
                pearson=encode_estimate(one.pearson),
                spearman=encode_estimate(one.spearman),
                kendall=encode_estimate(one.kendall),
            )
            for one in correlations.measures
        ],
        differences=[encode_difference(one) for one in correlations.differences],
    )


def encode_difference(difference: CorrelationDifference) -> pb.CorrelationDifference:
    """Encodes the difference of two correlations."""
    return pb.CorrelationDifference(
        first_measure=difference.first,
        second_measure=difference.second,
        williams_t=encode_estimate(difference.williams_t),
        williams_p=difference.williams_p,
        kendall_difference=encode_estimate(difference.kendall_difference),
    )
