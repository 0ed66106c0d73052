"""Messages of CompareRuns, RankSystems and MeasurePreferences."""

from __future__ import annotations

import math

import numpy as np

from dramaturg.api.alignment.v1 import compare_pb2, preference_pb2, ranking_pb2
from dramaturg.service.errors import Violation, invalid, invalid_fields
from dramaturg.service.threads import Checkpoint
from dramaturg.service.validation import MAX_VIOLATIONS
from services.alignment.bootstrap import cluster_codes, group_codes
from services.alignment.codec.estimates import decode_policy, decode_resampling
from services.alignment.comparison.model import Design, Runs
from services.alignment.errors import too_large
from services.alignment.preference import MAX_RATED_SYSTEMS, REFERENCE_WEIGHT, Pairs
from services.alignment.ranking import MAX_METHODS, Rows
from services.alignment.ranking import Design as RankingDesign

DEFAULT_PERMUTATIONS = 9999
"""How many permutations are drawn where the request names no number: with the one seen, 10,000."""
DEFAULT_POWER = 0.8
"""The power of the minimum detectable effect where the request names none (Cohen 1988)."""
_CHUNK = 10_000


def decode_runs(request: compare_pb2.CompareRunsRequest, checkpoint: Checkpoint) -> tuple[Runs, Design]:
    """Reads the systems' values and how they are to be compared.

    Raises:
        ServiceError: INVALID_ARGUMENT: no item has the baseline, or nothing is compared with it; verdicts
            beside scores; a lowest score that is not below the highest; a margin as wide as the scale.
    """
    verdicts = _verdicts(request, checkpoint)
    ends = request.HasField("lowest_score") and request.HasField("highest_score")
    if ends and request.lowest_score >= request.highest_score:
        raise invalid("highest_score", "is not above lowest_score")
    names = sorted({system for item in request.items for system in item.outcomes})
    if request.baseline not in names:
        raise invalid("baseline", f"is {request.baseline!r}, which no item has; there are {', '.join(names)}")
    if len(names) == 1:
        raise invalid("items", "have the baseline alone: there is nothing to compare with it")
    values = {name: np.full(len(request.items), np.nan) for name in names}
    ran = {name: np.zeros(len(request.items), np.bool_) for name in names}
    for index, item in enumerate(request.items):
        if index % _CHUNK == 0:
            checkpoint()
        for name, outcome in item.outcomes.items():
            ran[name][index] = True
            if kind := outcome.WhichOneof("value"):
                values[name][index] = float(getattr(outcome, kind))
    groups, group = group_codes(item.tags.get(request.group_tag, "") for item in request.items)
    runs = Runs(
        values=values,
        ran=ran,
        human=np.array([item.human if item.HasField("human") else math.nan for item in request.items]),
        group=group,
        groups=groups,
        cluster=cluster_codes([item.tags.get(request.cluster_tag, "") for item in request.items]),
    )
    design = _design(request, verdicts=verdicts, checkpoint=checkpoint)
    if design.span is not None and design.margin >= design.span:
        raise invalid("margin", f"must be less than {design.span:g}, the largest loss that there can be")
    return runs, design


def _verdicts(request: compare_pb2.CompareRunsRequest, checkpoint: Checkpoint) -> bool:
    wanted, violations = "", list[Violation]()
    for index, item in enumerate(request.items):
        if index % _CHUNK == 0:
            checkpoint()
        for name, outcome in item.outcomes.items():
            kind = outcome.WhichOneof("value") or ""
            wanted = wanted or kind
            if kind and kind != wanted:
                problem = f"is {kind}, where others are {wanted}: compare verdicts or scores"
                violations.append(Violation(f"items[{index}].outcomes[{name!r}]", problem))
        if len(violations) >= MAX_VIOLATIONS:
            break
    if violations:
        raise invalid_fields(violations[:MAX_VIOLATIONS])
    return wanted != "score"


def _design(request: compare_pb2.CompareRunsRequest, *, verdicts: bool, checkpoint: Checkpoint) -> Design:
    lowest = request.lowest_score if request.HasField("lowest_score") else None
    highest = request.highest_score if request.HasField("highest_score") else None
    return Design(
        baseline=request.baseline,
        verdicts=verdicts,
        clustered=bool(request.cluster_tag),
        lowest=0.0 if verdicts else lowest,
        highest=1.0 if verdicts else highest,
        margin=request.margin,
        power=request.power if request.HasField("power") else DEFAULT_POWER,
        permutations=request.permutation_count or DEFAULT_PERMUTATIONS,
        policy=decode_policy(request.abstention_policy),
        every_group=request.gate_scope == compare_pb2.GATE_SCOPE_EVERY_GROUP,
        resampling=decode_resampling(request, checkpoint),
        largest_loss=request.largest_task_loss if request.HasField("largest_task_loss") else None,
        anytime=request.anytime,
    )


def decode_ranking(request: ranking_pb2.RankSystemsRequest, checkpoint: Checkpoint) -> RankingDesign:
    """Decodes the design.

    Raises:
        ServiceError: INVALID_ARGUMENT: a row repeats the id, system and value of the macro tag of another, or
            no row has the baseline;
            RESOURCE_EXHAUSTED (ERROR_REASON_TOO_LARGE): there are more than ``MAX_METHODS``.
    """
    violations = _repeated(request, checkpoint)
    if violations:
        raise invalid_fields(violations[:MAX_VIOLATIONS])
    methods = sorted({name for item in request.items for name in item.scores})
    if len(methods) > MAX_METHODS:
        raise too_large("methods", limit=MAX_METHODS, actual=len(methods))
    columns = {name: column for column, name in enumerate(methods)}
    scores = np.full((len(request.items), len(methods)), np.nan)
    for row, item in enumerate(request.items):
        if row % _CHUNK == 0:
            checkpoint()
        for name, score in item.scores.items():
            scores[row, columns[name]] = score
    systems, system = group_codes(item.system for item in request.items)
    if request.baseline and request.baseline not in systems:
        problem = f"is {request.baseline!r}, which no item has; there are {', '.join(systems)}"
        raise invalid("baseline", problem)
    names = [item.tags.get(request.cluster_tag, "") or item.id for item in request.items]
    macros = [item.tags.get(request.macro_tag, "") for item in request.items]
    rows = Rows(
        item=cluster_codes(names),
        system=system,
        macro=np.unique(macros, return_inverse=True)[1] if request.macro_tag else np.zeros_like(system),
        scores=scores,
    )
    tags = dict.fromkeys(filter(None, request.group_tags))
    groups = {tag: group_codes(item.tags.get(tag, "") for item in request.items) for tag in tags}
    return RankingDesign(rows, systems, methods, groups, request.baseline)


def _repeated(request: ranking_pb2.RankSystemsRequest, checkpoint: Checkpoint) -> list[Violation]:
    seen: set[tuple[str, str, str]] = set()
    violations: list[Violation] = []
    for row, item in enumerate(request.items):
        if row % _CHUNK == 0:
            checkpoint()
        key = item.id, item.system, item.tags.get(request.macro_tag, "")
        if key in seen:
            problem = f"is {item.id!r}, which system {item.system!r} has already"
            violations.append(Violation(f"items[{row}].id", problem))
        seen.add(key)
    return violations


def reference_weight(request: preference_pb2.MeasurePreferencesRequest) -> float:
    return request.reference_weight if request.HasField("reference_weight") else REFERENCE_WEIGHT


def decode_preferences(request: preference_pb2.MeasurePreferencesRequest, checkpoint: Checkpoint) -> Pairs:
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
