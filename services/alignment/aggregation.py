"""Right labels from those of several annotators (Dawid and Skene 1979)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from services.alignment.bootstrap import Array, Index, gather
from services.alignment.workers import Checkpoint

_TOLERANCE = 1e-12
_SMALLEST = 1e-10


@dataclass(frozen=True)
class Votes:
    """Labels of annotators as parallel arrays."""

    item: Index
    annotator: Index
    label: Index
    items: int
    annotators: Sequence[str]
    labels: Sequence[str]


@dataclass(frozen=True)
class Aggregation:
    probabilities: Array
    """Items x labels; NaN for an item without votes."""
    prior: Array
    """The share of each label."""
    confusion: Array
    """Annotators x right labels x given labels."""
    votes: Array
    """Items x labels: the number of votes."""
    iterations: int
    converged: bool

    def accuracies(self) -> Array:
        """The probability that each annotator's label is right."""
        right: Array = np.einsum("k,akk->a", self.prior, self.confusion)
        return right


def aggregate(votes: Votes, iterations: int, checkpoint: Checkpoint) -> Aggregation:
    """Estimates labels and annotators by expectation maximization, from the shares of votes.

    Args:
        votes: The labels.
        iterations: The largest number of iterations.
        checkpoint: Called before each.
    """
    labels, annotators = len(votes.labels), len(votes.annotators)
    counts = np.zeros((votes.items, labels))
    np.add.at(counts, (votes.item, votes.label), 1.0)
    voted = counts.sum(axis=1) > 0
    probabilities = np.full((votes.items, labels), np.nan)
    probabilities[voted] = counts[voted] / counts[voted].sum(axis=1, keepdims=True)
    cells = votes.annotator * labels + votes.label
    last, converged, done = -np.inf, False, 0
    while not converged and done < iterations:
        done += 1
        checkpoint()
        prior, confusion = _maximize(votes, probabilities[voted], probabilities, cells, annotators, labels)
        # Of each vote: the log probability of the label given, for each right label.
        evidence = np.log(confusion[votes.annotator, :, votes.label])
        sums = np.stack(
            [np.bincount(votes.item, evidence[:, label], votes.items) for label in range(labels)], axis=1
        )
        sums += np.log(prior)
        highest = sums.max(axis=1, keepdims=True)
        weights = np.exp(sums - highest)
        likelihood = float((np.log(weights.sum(axis=1)) + highest[:, 0])[voted].sum())
        probabilities[voted] = (weights / weights.sum(axis=1, keepdims=True))[voted]
        converged = likelihood - last <= _TOLERANCE * abs(likelihood)
        last = likelihood
    prior, confusion = _maximize(votes, probabilities[voted], probabilities, cells, annotators, labels)
    return Aggregation(probabilities, prior, confusion, counts, done, converged)


def _maximize(
    votes: Votes, voted: Array, probabilities: Array, cells: Index, annotators: int, labels: int
) -> tuple[Array, Array]:
    """The prior and the confusion matrices that fit the labels' probabilities best."""
    prior = np.maximum(voted.mean(axis=0), _SMALLEST)
    by_vote = probabilities[votes.item].T
    given = gather(by_vote, cells, annotators * labels).reshape(labels, annotators, labels)
    confusion = np.maximum(given.transpose(1, 0, 2), _SMALLEST)
    confusion /= confusion.sum(axis=2, keepdims=True)
    return prior / prior.sum(), confusion
