"""Leaves out roles that are like others (DRPE, section 3.1, diversity clustering)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dramaturg.api.judging.v1.pair_judge_service_pb2 import ROLE_ORIGIN_OBJECTIVE, Role
from services.roles.dbscan import NOISE, Checkpoint, Density, dbscan

DEFAULT_EPS = 0.3
"""The cosine distance of neighbours, where a request gives none."""
DEFAULT_MIN_SAMPLES = 2
"""How many neighbours make a core, where a request does not say."""

_TIE_DECIMALS = 9
"""Two members are equally near a centre where their similarities agree to so many decimals."""


@dataclass(frozen=True)
class Cluster:
    """Roles that are alike, by their indices, ascending."""

    members: tuple[int, ...]
    """All of them."""
    kept: tuple[int, ...]
    """The one nearest the centre, and those that are always kept."""


@dataclass(frozen=True)
class Clustering:
    """What is alike and what is not."""

    clusters: tuple[Cluster, ...]
    """The clusters, by their first member."""
    noise: tuple[int, ...]
    """The indices of the roles in no cluster, ascending."""

    @property
    def kept(self) -> tuple[int, ...]:
        """The indices of all roles that stay, ascending."""
        return tuple(sorted([*self.noise, *(index for cluster in self.clusters for index in cluster.kept)]))


def text_of(role: Role) -> str:
    """What is embedded of a role: its type and description together (DRPE, section 3.1)."""
    return f"{role.type}: {role.description}"


def cluster(
    roles: Sequence[Role], vectors: NDArray[np.float32], density: Density, checkpoint: Checkpoint
) -> Clustering:
    """Clusters roles and chooses which stay.

    The order given does not matter: everything is computed in an order of its own, objective roles first,
    then by text. Of members equally near the centre the first in that order stays, so an objective role,
    which stays in any case, does not stand beside one that is no better.

    Args:
        roles: The roles.
        vectors: The embeddings of their texts, (roles, dimension), none of length 0.
        density: The parameters of DBSCAN.
        checkpoint: Called now and then; whatever it raises ends the work.
    """
    order = sorted(range(len(roles)), key=lambda index: (*_rank(roles[index]), index))
    ordered = vectors[order].astype(np.float64)
    ordered /= np.linalg.norm(ordered, axis=1, keepdims=True)
    labels = dbscan(ordered.astype(np.float32), density, checkpoint)
    members: dict[int, list[int]] = {}
    for place, label in enumerate(labels.tolist()):
        members.setdefault(label, []).append(place)
    noise = members.pop(NOISE, [])
    clusters = []
    for places in members.values():
        indices = [order[place] for place in places]
        central = indices[_central(ordered[places])]
        kept = {central} | {index for index in indices if _is_objective(roles[index])}
        clusters.append(Cluster(tuple(sorted(indices)), tuple(sorted(kept))))
    clusters.sort(key=lambda found: found.members)
    return Clustering(tuple(clusters), tuple(sorted(order[place] for place in noise)))


def _rank(role: Role) -> tuple[bool, str, int, str]:
    return not _is_objective(role), text_of(role), role.origin, role.type


def _is_objective(role: Role) -> bool:
    return role.origin == ROLE_ORIGIN_OBJECTIVE


def _central(vectors: NDArray[np.float64]) -> int:
    """The row nearest the mean of all; of several the first.

    Two vectors are always equally near their mean, which rounding must not hide.
    """
    similarities = vectors @ vectors.mean(axis=0)
    return int(np.round(similarities, _TIE_DECIMALS).argmax())
