"""One script, answered for by a model that reads its events together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Any

from services.edges.order import Edge
from services.edges.script_tokens import orders_to_read

if TYPE_CHECKING:
    from services.edges.joint_encoder import JointEncoder

ORDERS = 4
"""In how many orders a script is read when it is predicted."""


class JointInference:
    """One script, read in several orders, whose answers are averaged."""

    def __init__(self, encoder: JointEncoder, scenario: str, events: Sequence[str], batch_size: int) -> None:
        self._encoder = encoder
        self._tokens = encoder.tokenize(scenario, events)
        self._size = len(events)
        orders = orders_to_read(events, ORDERS)
        at_once = max(1, batch_size // (self._size * (self._size - 1) // 2))
        self._batches = [orders[first : first + at_once] for first in range(0, ORDERS, at_once)]
        self._answers: list[Any] = []

    @property
    def batches(self) -> int:
        """How many batches it takes."""
        return len(self._batches)

    @property
    def truncated(self) -> int:
        """All readings or none: they hold the same texts."""
        return ORDERS if self._tokens.truncated else 0

    def work(self, batch: int) -> None:
        """Reads the script in the orders of one batch."""
        self._answers += self._encoder.probabilities(self._tokens, self._batches[batch])

    def probabilities(self) -> Mapping[Edge, float]:
        """The means over all orders."""
        return {
            (i, j): sum(answer[i][j] for answer in self._answers) / len(self._answers)
            for i, j in permutations(range(self._size), 2)
        }
