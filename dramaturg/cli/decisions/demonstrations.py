"""Chooses the solved examples that stand before a question (Choice-75, section 3)."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import cycle

from dramaturg.api.common.v1 import decision_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.api.generation.v1.authoring_decisions_pb2 import DecisionDemonstration

PAPER_COUNT = 9
"""Three choices at three levels."""

_KINDS = (
    (decision_pb2.CHOICE_OPTION_1, "easy"),
    (decision_pb2.CHOICE_OPTION_2, "medium"),
    (decision_pb2.CHOICE_EITHER, "either"),
    (decision_pb2.CHOICE_OPTION_1, "medium"),
    (decision_pb2.CHOICE_OPTION_2, "hard"),
    (decision_pb2.CHOICE_EITHER, "either"),
    (decision_pb2.CHOICE_OPTION_1, "hard"),
    (decision_pb2.CHOICE_OPTION_2, "easy"),
    (decision_pb2.CHOICE_EITHER, "either"),
)
"""Each choice at each level. A scenario without a better option has no other level than "either"."""


def choose_demonstrations(
    held_out: Sequence[EvaluateDecisionsRequest], count: int, seed: int
) -> list[DecisionDemonstration]:
    """Draws examples of every choice and level as evenly as they are there.

    Args:
        held_out: Solved decisions, tagged "level", none of which is scored.
        count: How many to draw.
        seed: The seed of the draw; equal arguments give equal examples in equal order.

    Returns:
        The examples, in an order drawn too; fewer than ``count`` where there are no more.
    """
    draw = random.Random(seed)  # noqa: S311 - which examples are shown is no secret
    stock: defaultdict[tuple[int, str], list[EvaluateDecisionsRequest]] = defaultdict(list)
    for request in held_out:
        stock[request.gold, request.tags["level"]].append(request)
    for requests in stock.values():
        draw.shuffle(requests)
    chosen: list[EvaluateDecisionsRequest] = []
    for kind in cycle(_KINDS):
        if len(chosen) == count or not any(stock[one] for one in _KINDS):
            break
        if stock[kind]:
            chosen.append(stock[kind].pop())
    draw.shuffle(chosen)
    return [DecisionDemonstration(decision=request.decision, choice=request.gold) for request in chosen]
