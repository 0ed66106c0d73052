"""Messages of MeasurePreferences."""

from __future__ import annotations

import numpy as np

from dramaturg.api.alignment.v1 import preference_pb2 as pb
from dramaturg.service.errors import Violation, invalid, invalid_fields
from dramaturg.service.validation import MAX_VIOLATIONS
from services.alignment.bootstrap import cluster_codes
from services.alignment.codec.estimates import encode_estimate
from services.alignment.errors import too_large
from services.alignment.length_control import Adjustment
from services.alignment.pairs import Pairs
from services.alignment.preference import MAX_RATED_SYSTEMS, REFERENCE_WEIGHT, Preferences
from services.alignment.workers import Checkpoint

_CHUNK = 10_000
_CONTROLS = {
    Adjustment.LENGTH: pb.LENGTH_CONTROL_LENGTH_ALONE,
    Adjustment.GIVEN_DIFFICULTY: pb.LENGTH_CONTROL_GIVEN_DIFFICULTY,
    Adjustment.JOINT_DIFFICULTY: pb.LENGTH_CONTROL_JOINT_DIFFICULTY,
}


def reference_weight(request: pb.MeasurePreferencesRequest) -> float:
    return request.reference_weight if request.HasField("reference_weight") else REFERENCE_WEIGHT


def decode_preferences(request: pb.MeasurePreferencesRequest, checkpoint: Checkpoint) -> Pairs:
    """Reads the pairs with a preference.

    Raises:
        ServiceError: INVALID_ARGUMENT: a system is compared with itself, no pair has a preference, or none
            the baseline. RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): too many systems.
    """
    checkpoint()
    violations = [
        Violation(f"pairs[{index}].second", "is the first system")
        for index, pair in enumerate(request.pairs)
        if pair.first == pair.second
    ]
    if violations:
        raise invalid_fields(violations[:MAX_VIOLATIONS])
    judged = [pair for pair in request.pairs if pair.HasField("preference")]
    if not judged:
        raise invalid("pairs", "have no preference")
    systems = sorted({name for pair in judged for name in (pair.first, pair.second)})
    if len(systems) > MAX_RATED_SYSTEMS:
        raise too_large("systems", limit=MAX_RATED_SYSTEMS, actual=len(systems))
    if request.baseline and request.baseline not in systems:
        problem = f"is {request.baseline!r}, which no judged pair has; there are {', '.join(systems)}"
        raise invalid("baseline", problem)
    places = {name: place for place, name in enumerate(systems)}
    checkpoint()
    _, prompt = np.unique(cluster_codes([pair.prompt for pair in judged]), return_inverse=True)
    longer = [
        pair.first_length - pair.second_length
        if pair.HasField("first_length") and pair.HasField("second_length")
        else np.nan
        for pair in judged
    ]
    difficulty = [pair.difficulty if pair.HasField("difficulty") else np.nan for pair in judged]
    return Pairs(
        systems=systems,
        prompt=prompt,
        first=np.array([places[pair.first] for pair in judged], np.intp),
        second=np.array([places[pair.second] for pair in judged], np.intp),
        preference=np.array([pair.preference for pair in judged], np.float64),
        longer=np.array(longer, np.float64),
        difficulty=np.array(difficulty, np.float64),
    )


def encode_preferences(
    request: pb.MeasurePreferencesRequest, found: Preferences
) -> pb.MeasurePreferencesResponse:
    response = pb.MeasurePreferencesResponse(
        ratings=[pb.Rating(system=name, elo=encode_estimate(elo)) for name, elo in found.ratings.systems],
        abstained_count=sum(not pair.HasField("preference") for pair in request.pairs),
        rating_prior=found.ratings.prior,
    )
    if found.ratings.position_effect is not None:
        response.position_effect.CopyFrom(encode_estimate(found.ratings.position_effect))
    for one in found.win_rates:
        rate = response.win_rates.add(
            system=one.system,
            opponent=one.opponent,
            win_rate=encode_estimate(one.win_rate),
            draw_count=one.draws,
        )
        if (controlled := one.length_controlled) is not None:
            rate.length_controlled_win_rate.CopyFrom(encode_estimate(controlled.rate))
            rate.length_control = _CONTROLS[controlled.adjustment]
            if controlled.longer_share is not None:
                rate.longer_share = controlled.longer_share
    return response
