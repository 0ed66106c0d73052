"""The edit distance: the edits of a mapping of events, and their cost.

A mapping takes events of the first graph to different events of the second, or to none. An event without an
image is deleted, one that is no image inserted, one whose image has another label replaced. An edge whose
ends are both mapped onto the ends of an edge is kept as that edge, and replaced where an end is; other edges
are deleted or inserted. Every edit costs 1. (In Table 2 of the paper the number of replaced edges follows the
number of replaced events, and nothing else, which is why an edge is taken to be replaced with its ends.)

Mappings of the same cost can have different edits. Ties go to the mapping with the fewest replaced events,
then to the one with the fewest replaced edges. That determines all six counts: the deleted and inserted
events are the difference of the sizes, as are the deleted minus the inserted edges. The three objectives are
combined into one integer, the weight, whose leading part is the cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from enum import Enum
from functools import cached_property

UNMAPPED = -1
"""The image of a deleted event."""

Mapping = tuple[int, ...]
"""For each event of the first graph its image in the second, or ``UNMAPPED``."""


class Mode(Enum):
    """Rules for counting edits; see ``DistanceMode`` in the contract."""

    PROSCRIPT = "proscript"
    STRUCTURAL = "structural"
    ANCHORED = "anchored"
    LABEL_FREE = "label-free"


@dataclass(frozen=True)
class Edits:
    """The number of edits by kind, the columns of Table 2."""

    deleted_events: int
    inserted_events: int
    replaced_events: int
    deleted_edges: int
    inserted_edges: int
    replaced_edges: int

    @property
    def cost(self) -> int:
        """The total number of edits; every edit costs 1."""
        return sum(astuple(self))

    def reversed(self) -> Edits:
        """The edits of the reverse direction."""
        return Edits(
            deleted_events=self.inserted_events,
            inserted_events=self.deleted_events,
            replaced_events=self.replaced_events,
            deleted_edges=self.inserted_edges,
            inserted_edges=self.deleted_edges,
            replaced_edges=self.replaced_edges,
        )


@dataclass(frozen=True)
class Problem:
    """Two graphs over event indices and the rules for edits.

    The first graph has at most as many events as the second.

    Attributes:
        sizes: The numbers of events.
        first_edges: The first graph's distinct edges.
        second_edges: The second graph's distinct edges.
        equal: Whether event ``i`` of the first and event ``k`` of the second have the same label, as
            ``equal[i][k]``.
        mode: The rules. For ``LABEL_FREE`` all of ``equal`` is true.
    """

    sizes: tuple[int, int]
    first_edges: tuple[tuple[int, int], ...]
    second_edges: tuple[tuple[int, int], ...]
    equal: tuple[tuple[bool, ...], ...]
    mode: Mode

    def __post_init__(self) -> None:
        if self.sizes[0] > self.sizes[1]:
            raise ValueError("the first graph has more events than the second")

    @property
    def edges_are_replaced(self) -> bool:
        """Whether a kept edge with a replaced end costs an edit."""
        return self.mode in {Mode.PROSCRIPT, Mode.ANCHORED}

    @cached_property
    def weights(self) -> Weights:
        """The weights that combine the cost and the tie rule into one number."""
        edges = min(len(self.first_edges), len(self.second_edges)) + 1
        return Weights(edit=(self.sizes[0] + 1) * edges, replaced_event=edges, replaced_edge=1)

    @cached_property
    def second_edge_set(self) -> frozenset[tuple[int, int]]:
        return frozenset(self.second_edges)

    @cached_property
    def constant(self) -> int:
        """The weight of deleting one graph and inserting the other."""
        return self.weights.edit * (sum(self.sizes) + len(self.first_edges) + len(self.second_edges))

    def edge_weight(self, first: tuple[int, int], second: tuple[int, int]) -> int:
        """The weight of keeping an edge of the first graph as one of the second."""
        ends_equal = self.equal[first[0]][second[0]] and self.equal[first[1]][second[1]]
        if ends_equal or not self.edges_are_replaced:
            return 0
        return self.weights.edit + self.weights.replaced_edge

    def edits(self, mapping: Sequence[int]) -> Edits:
        mapped = sum(image != UNMAPPED for image in mapping)
        replaced = [image != UNMAPPED and not self.equal[i][image] for i, image in enumerate(mapping)]
        kept = [(u, v) for u, v in self.first_edges if (mapping[u], mapping[v]) in self.second_edge_set]
        replaced_edges = sum(replaced[u] or replaced[v] for u, v in kept) if self.edges_are_replaced else 0
        return Edits(
            deleted_events=self.sizes[0] - mapped,
            inserted_events=self.sizes[1] - mapped,
            replaced_events=sum(replaced),
            deleted_edges=len(self.first_edges) - len(kept),
            inserted_edges=len(self.second_edges) - len(kept),
            replaced_edges=replaced_edges,
        )

    def weight(self, mapping: Sequence[int]) -> int:
        """The weight of a mapping: its cost first, then its replaced events, then its replaced edges."""
        edits, weights = self.edits(mapping), self.weights
        return (
            weights.edit * edits.cost
            + weights.replaced_event * edits.replaced_events
            + weights.replaced_edge * edits.replaced_edges
        )

    def cost_of(self, weight: int) -> int:
        """The cost part of a weight."""
        return weight // self.weights.edit


@dataclass(frozen=True)
class Weights:
    """Integers such that sums of smaller weights never reach a larger one."""

    edit: int
    replaced_event: int
    replaced_edge: int
