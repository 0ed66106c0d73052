"""What the model is shown: pairs of events with the right answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

from dramaturg_research.training.scripts import Script
from services.edges.order import Edge, Pair, Relation
from services.edges.plan import Label


@dataclass(frozen=True)
class Example:
    """A pair and its class."""

    pair: Pair
    relation: Relation


def relation_of(script: Script, first: int, second: int, label: Label) -> Relation:
    """The class of a pair of events."""
    if label is Label.PRECEDES:
        forward, backward = script.precedes(first, second), script.precedes(second, first)
    else:
        forward, backward = (first, second) in script.edges, (second, first) in script.edges
    return Relation.FORWARD if forward else Relation.BACKWARD if backward else Relation.NEITHER


def sample_epoch(scripts: Sequence[Script], label: Label, seed: int, epoch: int) -> list[Example]:
    """The examples of one epoch, in the order in which they are learnt.

    Every pair of events is shown once, in an order drawn anew. Of the pairs with a script's first event
    (the one before all others) and of those with its last, one each is drawn: in proScript these are named
    by the scenario and learnt at once, but make up half of all pairs.

    Args:
        scripts: The scripts.
        label: What is learnt.
        seed: Of the whole training.
        epoch: From 0. The draw depends on it and the seed alone.
    """
    rng = Random(f"{seed}/{epoch}")  # noqa: S311
    examples = []
    for script in scripts:
        for first, second in _chosen(script, rng):
            if rng.random() < 0.5:
                first, second = second, first
            pair = Pair(script.scenario, script.events[first], script.events[second])
            examples.append(Example(pair, relation_of(script, first, second, label)))
    rng.shuffle(examples)
    return examples


def _chosen(script: Script, rng: Random) -> Iterator[Edge]:
    size = len(script.events)
    everything = (1 << size) - 1
    ends = [event for event in range(size) if script.after[event] == everything & ~(1 << event)]
    ends += [
        event
        for event in range(size)
        if all(script.precedes(other, event) for other in range(size) if other != event)
    ]
    middle = [event for event in range(size) if event not in ends]
    yield from combinations(middle, 2)
    for end in ends:
        yield end, rng.choice([event for event in range(size) if event != end])
