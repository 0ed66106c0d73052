"""Messages of CorrelateScores."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy as np

from dramaturg.api.alignment.v1 import correlation_pb2 as pb
from services.alignment.bootstrap import Array, Index, cluster_codes, group_codes
from services.alignment.codec.estimates import encode_estimate
from services.alignment.correlation.levels import Levels
from services.alignment.correlation.measure import (
    CorrelationDifference,
    Correlations,
    MeasureCorrelation,
    Series,
)
from services.alignment.errors import too_large
from services.alignment.estimates import Estimate
from services.alignment.workers import Checkpoint

MAX_MEASURES = 200
"""The maximum number of distinct measures of a request; every two are compared."""
MAX_GROUPS = 2000
"""The maximum number of groups of a request."""
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


def decode_levels(request: pb.CorrelateScoresRequest) -> Levels:
    """Reads the clusters and systems of the items."""
    systems = group_codes(item.tags.get(request.system_tag, "") for item in request.items)[1]
    return Levels(
        cluster=cluster_codes([item.tags.get(request.cluster_tag, "") for item in request.items]),
        system=systems,
        clustered=bool(request.cluster_tag),
        systems=bool(request.system_tag),
    )


def decode_groups(request: pb.CorrelateScoresRequest) -> tuple[list[str], Index]:
    """The names of the groups, and the index of each item's.

    Raises:
        ServiceError: RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): too many groups.
    """
    if not request.group_tag:
        return [], np.full(len(request.items), -1, np.intp)
    groups, codes = group_codes(item.tags.get(request.group_tag, "") for item in request.items)
    if len(groups) > MAX_GROUPS:
        raise too_large("groups", limit=MAX_GROUPS, actual=len(groups))
    return groups, codes


def encode_correlations(
    whole: Correlations, groups: Mapping[str, Correlations]
) -> pb.CorrelateScoresResponse:
    return pb.CorrelateScoresResponse(
        measures=[_encode_measure(one) for one in whole.measures],
        differences=[encode_difference(one) for one in whole.differences],
        groups=[
            pb.CorrelationGroup(
                group=name,
                measures=[_encode_measure(one) for one in found.measures],
                differences=[encode_difference(one) for one in found.differences],
            )
            for name, found in groups.items()
        ],
    )


def _encode_measure(one: MeasureCorrelation) -> pb.MeasureCorrelation:
    return pb.MeasureCorrelation(
        measure=one.measure,
        pearson=encode_estimate(one.pearson),
        spearman=encode_estimate(one.spearman),
        kendall=encode_estimate(one.kendall),
        summary_level=_encode_level(one.summary_level),
        system_level=_encode_level(one.system_level),
    )


def _encode_level(estimates: Sequence[Estimate]) -> pb.LevelCorrelation | None:
    if not estimates:
        return None
    pearson, spearman, kendall = (encode_estimate(one) for one in estimates)
    return pb.LevelCorrelation(pearson=pearson, spearman=spearman, kendall=kendall)


def encode_difference(difference: CorrelationDifference) -> pb.CorrelationDifference:
    """Encodes the difference of two correlations."""
    return pb.CorrelationDifference(
        first_measure=difference.first,
        second_measure=difference.second,
        williams_t=encode_estimate(difference.williams_t),
        williams_p=difference.williams_p,
        kendall_difference=encode_estimate(difference.kendall_difference),
        holm_p=difference.holm_p,
        false_discovery_p=difference.false_discovery_p,
    )
