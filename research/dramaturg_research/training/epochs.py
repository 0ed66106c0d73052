"""Batches of one epoch with their losses: pairs of events, or whole scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Any, Protocol

from dramaturg_research.training.scripts import Script
from services.edges.encoder import PairEncoder
from services.edges.inference import WindowError, cut
from services.edges.joint_encoder import RELATIONS, JointEncoder
from services.edges.order import Edge, Pair, Relation
from services.edges.plan import Label, TrainingPlan

# The weight of the choice loss beside the binary losses.
CHOICE_WEIGHT = 0.5
# Of ``RELATIONS``. Edges are a third as frequent as ordered pairs, and scripts are scored by edges.
_WEIGHTS = {Label.EDGE: 2.0, Label.PRECEDES: 1.0}


class EpochBatches(Protocol):
    """The batches of one epoch, determined by the plan, the scripts and the epoch."""

    @property
    def batch_count(self) -> int: ...

    def loss(self, batch: int) -> Any:
        """The loss of a batch, a scalar tensor with gradients."""


class PairBatches:
    """Batches of pairs; the loss is the mean cross-entropy of three classes."""

    def __init__(
        self, encoder: PairEncoder, scripts: Sequence[Script], plan: TrainingPlan, epoch: int
    ) -> None:
        self._encoder = encoder
        self._examples = sample_epoch(scripts, plan.label, plan.seed, epoch)
        self._tokens = encoder.tokenize([example.pair for example in self._examples])
        lengths = [tokens.length for tokens in self._tokens]
        self._batches = training_batches(lengths, plan.batch_size, plan.seed, epoch)

    @property
    def batch_count(self) -> int:
        return len(self._batches)

    def loss(self, batch: int) -> Any:
        """The mean cross-entropy, in nats."""
        import torch

        indices = self._batches[batch]
        logits = self._encoder.logits([self._tokens[index] for index in indices])
        wanted = torch.tensor([self._examples[index].relation for index in indices], device=logits.device)
        return torch.nn.functional.cross_entropy(logits, wanted)


class JointBatches:
    """Batches of whole scripts with their events in random order.

    The loss is the weighted sum over ``RELATIONS`` of the mean binary cross-entropy of all ordered pairs,
    plus the choice loss.
    """

    def __init__(
        self, encoder: JointEncoder, scripts: Sequence[Script], plan: TrainingPlan, epoch: int
    ) -> None:
        self._encoder = encoder
        rng = Random(f"{plan.seed}/{epoch}")  # noqa: S311
        self._scripts = rng.sample(scripts, len(scripts))
        self._orders = [rng.sample(range(len(script.events)), len(script.events)) for script in self._scripts]
        self._tokens = [encoder.tokenize(script.scenario, script.events) for script in self._scripts]
        lengths = [tokens.length for tokens in self._tokens]
        self._batches = training_batches(lengths, plan.batch_size, plan.seed, epoch)

    @property
    def batch_count(self) -> int:
        return len(self._batches)

    def loss(self, batch: int) -> Any:
        """The weighted sum of the two mean binary cross-entropies, in nats."""
        import torch

        indices = self._batches[batch]
        orders = [self._orders[index] for index in indices]
        logits = self._encoder.logits([self._tokens[index] for index in indices], orders)
        wanted, counted = torch.zeros(logits.shape), torch.zeros(len(indices), *logits.shape[2:])
        for row, (index, order) in enumerate(zip(indices, orders, strict=True)):
            size = len(order)
            wanted[row, :, :size, :size] = torch.tensor(relations_of(self._scripts[index], order))
            counted[row, :size, :size] = 1 - torch.eye(size)
        wanted, counted = wanted.to(logits.device), counted.to(logits.device)
        each = torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        means = (each * counted[:, None]).sum((0, 2, 3)) / counted.sum()
        losses = sum(mean * _WEIGHTS[relation] for mean, relation in zip(means, RELATIONS, strict=True))
        edges = RELATIONS.index(Label.EDGE)
        return losses + CHOICE_WEIGHT * choice_loss(logits[:, edges], wanted[:, edges], counted)


def relations_of(script: Script, order: Sequence[int]) -> list[list[list[float]]]:
    """The relations between the events of a script.

    Returns:
        [r][i][j] is 1.0 if relation r holds between the events at positions i and j of the order, else 0.0.
    """
    holds = {
        Label.EDGE: lambda first, second: (first, second) in script.edges,
        Label.PRECEDES: script.precedes,
    }
    return [
        [[float(holds[relation](first, second)) for second in order] for first in order]
        for relation in RELATIONS
    ]


def require_window(encoder: JointEncoder, scripts: Iterable[Script]) -> None:
    """Checks that all scripts fit the window, before training starts.

    Raises:
        WindowError: A script exceeds the window.
    """
    for script in scripts:
        try:
            encoder.tokenize(script.scenario, script.events)
        except WindowError as problem:
            raise WindowError(problem.length, problem.window, script.scenario) from None


def choice_loss(scores: Any, edges: Any, counted: Any) -> Any:
    """The mean cross-entropy of the choices of successors and of predecessors, in nats.

    Events compete as successors and predecessors, as heads do in dependency parsing (Dozat and Manning,
    2017). If an event has several, each is equally correct; if it has none, the correct choice is "none",
    whose score is 0.

    Args:
        scores: The logits of edges, a float tensor (scripts, events, events).
        edges: 1.0 for edges, else 0.0; same shape.
        counted: 1.0 for pairs of two events of the script, else 0.0 (padding); same shape.
    """
    after = _one_way(scores, edges, counted)
    before = _one_way(*(tensor.transpose(1, 2) for tensor in (scores, edges, counted)))
    return (after + before) / 2


def _one_way(scores: Any, edges: Any, counted: Any) -> Any:
    import torch

    # Not minus infinity, whose product with 0 is NaN.
    open_scores = scores.masked_fill(counted == 0, -1e4)
    none = torch.zeros_like(open_scores[..., :1])
    chances = torch.cat([open_scores, none], dim=-1).log_softmax(dim=-1)
    right = torch.cat([edges, (edges.sum(-1, keepdim=True) == 0).float()], dim=-1)
    each = -(chances * right).sum(-1) / right.sum(-1)
    # Padding has no pairs.
    events = (counted.sum(-1) > 0).float()
    return (each * events).sum() / events.sum()


_WINDOW = 50
"""The number of batches sorted by length at a time. More saves little time and makes epochs similar."""


def training_batches(lengths: Sequence[int], size: int, seed: int, epoch: int) -> list[list[int]]:
    """The batches of one epoch, in training order.

    Examples are sorted by length only within windows of fifty batches, and the batches are then shuffled, so
    that neither the members of a batch nor the order of batches is fixed.

    Args:
        lengths: The number of tokens of each example, in random order.
        size: The number of examples of a batch.
        seed: The seed of the training.
        epoch: The epoch, from 0.
    """
    batches = []
    for start in range(0, len(lengths), _WINDOW * size):
        window = range(start, min(start + _WINDOW * size, len(lengths)))
        batches += cut(sorted(window, key=lambda index: (lengths[index], index)), size)
    Random(f"{seed}/{epoch}/batches").shuffle(batches)  # noqa: S311
    return batches


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
