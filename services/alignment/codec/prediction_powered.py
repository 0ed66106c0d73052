"""Messages of EstimateMeans."""

from __future__ import annotations

import numpy as np

from dramaturg.api.alignment.v1 import prediction_powered_pb2 as pb
from dramaturg.service.errors import invalid
from services.alignment.bootstrap import Array, cluster_codes
from services.alignment.codec.estimates import encode_estimate
from services.alignment.errors import too_large
from services.alignment.prediction_powered import Means, PredictionPoweredMean, Predictions
from services.alignment.workers import Checkpoint

MAX_SYSTEMS = 100
"""The maximum number of distinct systems of a request."""
_CHUNK = 10_000


def decode_predictions(request: pb.EstimateMeansRequest, checkpoint: Checkpoint) -> dict[str, Predictions]:
    """Reads predictions and labels by system.

    Raises:
        ServiceError: INVALID_ARGUMENT: no item has a prediction, or none of the baseline, or some labels of a
            system have an inclusion probability and others have none. RESOURCE_EXHAUSTED
            (ERROR_REASON_TOO_LARGE): there are more than ``MAX_SYSTEMS``.
    """
    names = sorted({system for item in request.items for system in item.predictions})
    if not names:
        raise invalid("items", "have no prediction")
    if len(names) > MAX_SYSTEMS:
        raise too_large("systems", limit=MAX_SYSTEMS, actual=len(names))
    if request.baseline and request.baseline not in names:
        raise invalid("baseline", f"is {request.baseline!r}, which no item has; there are {', '.join(names)}")
    cluster = cluster_codes([item.tags.get(request.cluster_tag, "") for item in request.items])
    values = {name: np.full((3, len(request.items)), np.nan) for name in names}
    strata = {name: np.zeros(len(request.items), int) for name in names}
    numbers: dict[str, int] = {"": 0}
    for index, item in enumerate(request.items):
        if index % _CHUNK == 0:
            checkpoint()
        for name, predicted in item.predictions.items():
            values[name][0, index] = predicted
            if name in item.labels:
                values[name][1, index] = item.labels[name]
                values[name][2, index] = item.inclusion_probabilities.get(name, np.nan)
            stratum = item.strata.get(name, "")
            strata[name][index] = numbers.setdefault(stratum, len(numbers))
    return {
        name: Predictions(found[0], found[1], cluster, _probabilities(name, found), strata[name])
        for name, found in values.items()
    }


def _probabilities(system: str, values: Array) -> Array | None:
    """The probabilities of the labelled items; none: no item has one."""
    probabilities: Array = values[2]
    labelled = ~np.isnan(values[0]) & ~np.isnan(values[1])
    missing = np.isnan(probabilities) & labelled
    if missing.sum() == labelled.sum():
        return None
    if missing.any():
        place = int(np.flatnonzero(missing)[0])
        raise invalid(
            f"items[{place}].inclusion_probabilities",
            f"lacks {system!r}, which has a label; other labels of the system have a probability",
        )
    return probabilities


def encode_means(found: Means) -> pb.EstimateMeansResponse:
    return pb.EstimateMeansResponse(
        means=[_encode(one) for one in found.means],
        differences=[_encode(one) for one in found.differences],
    )


def _encode(one: PredictionPoweredMean) -> pb.PredictionPoweredMean:
    return pb.PredictionPoweredMean(
        system=one.system,
        prediction_powered=encode_estimate(one.prediction_powered),
        labels_alone=encode_estimate(one.labels_alone),
        predictions_alone=encode_estimate(one.predictions_alone),
        tuning_parameter=one.tuning_parameter,
        effective_labels=one.effective_labels,
    )
