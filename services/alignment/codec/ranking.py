"""Messages of RankSystems."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dramaturg.api.alignment.v1 import ranking_pb2 as pb
from dramaturg.service.errors import Violation, invalid, invalid_fields
from dramaturg.service.validation import MAX_VIOLATIONS
from services.alignment.bootstrap import cluster_codes, group_codes
from services.alignment.codec.estimates import encode_estimate
from services.alignment.errors import too_large
from services.alignment.ranking.means import Rows
from services.alignment.ranking.rankings import MAX_METHODS, Design, RankedSystem, Ranking
from services.alignment.workers import Checkpoint

_CHUNK = 10_000


def decode_ranking(request: pb.RankSystemsRequest, checkpoint: Checkpoint) -> Design:
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
    return Design(rows, systems, methods, groups, request.baseline)


def encode_rankings(rankings: Sequence[Ranking]) -> pb.RankSystemsResponse:
    return pb.RankSystemsResponse(groups=[_encode_ranking(ranking) for ranking in rankings])


def _repeated(request: pb.RankSystemsRequest, checkpoint: Checkpoint) -> list[Violation]:
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


def _encode_ranking(ranking: Ranking) -> pb.RankGroup:
    return pb.RankGroup(
        tag=ranking.tag,
        value=ranking.value,
        methods=[
            pb.MethodRanking(
                method=one.method,
                systems=[_encode_system(system) for system in one.systems],
                stability=encode_estimate(one.stability),
            )
            for one in ranking.methods
        ],
        correlations=[
            pb.RankCorrelation(
                first_method=one.first,
                second_method=one.second,
                spearman=encode_estimate(one.spearman),
                kendall=encode_estimate(one.kendall),
            )
            for one in ranking.correlations
        ],
    )


def _encode_system(system: RankedSystem) -> pb.RankedSystem:
    return pb.RankedSystem(
        system=system.system,
        mean=encode_estimate(system.mean),
        rank=system.rank,
        rank_lower=system.rank_lower,
        rank_upper=system.rank_upper,
        first_share=system.first_share,
        difference=encode_estimate(system.difference) if system.difference is not None else None,
        p_value=system.p,
        adjusted_p_value=system.adjusted_p,
    )
