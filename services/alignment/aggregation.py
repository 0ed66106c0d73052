"""Right labels from those of several annotators (Dawid and Skene 1979)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from services.alignment.bootstrap import Array, Index, gather
from services.alignment.workers import Checkpoint

_TOLERANCE = 1e-12


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
    shares: Array
    """The share of each label."""
    confusion: Array
    """Annotators x right labels x given labels."""
    votes: Array
    """Items x labels: the number of votes."""
    iterations: int
    converged: bool

    def accuracies(self) -> Array:
        """The probability that each annotator's label is right."""
        right: Array = np.einsum("k,akk->a", self.shares, self.confusion)
        return right


def aggregate(votes: Votes, weights: Array, iterations: int, checkpoint: Checkpoint) -> Aggregation:
    """Estimates labels and annotators by expectation maximization, from the shares of votes.

    The prior of each annotator is two more items of each right label, of which one is labelled right and one
    at random; that of the labels is one more item, with each label equally. Without it a label that one
    annotator gives rarely can take the items of others. The estimate is the posterior mode.

    Args:
        votes: The labels.
        weights: The weight of each annotator's labels: less than 1 where several err together.
        iterations: The largest number of iterations.
        checkpoint: Called before each.
    """
    labels, annotators = len(votes.labels), len(votes.annotators)
    weight = weights[votes.annotator]
    counts, shares = np.zeros((votes.items, labels)), np.zeros((votes.items, labels))
    np.add.at(counts, (votes.item, votes.label), 1.0)
    np.add.at(shares, (votes.item, votes.label), weight)
    voted = counts.sum(axis=1) > 0
    probabilities = np.full((votes.items, labels), np.nan)
    probabilities[voted] = shares[voted] / shares[voted].sum(axis=1, keepdims=True)
    cells = votes.annotator * labels + votes.label
    pseudo = np.eye(labels) + 1 / labels
    last, converged, done = -np.inf, False, 0

    def maximize() -> tuple[Array, Array]:
        """The shares and the confusion matrices that fit the labels' probabilities best."""
        shares = probabilities[voted].sum(axis=0) + 1 / labels
        by_vote = probabilities[votes.item].T * weight
        given = gather(by_vote, cells, annotators * labels).reshape(labels, annotators, labels)
        confusion = given.transpose(1, 0, 2) + pseudo
        return shares / shares.sum(), confusion / confusion.sum(axis=2, keepdims=True)

    while not converged and done < iterations:
        done += 1
        checkpoint()
        prior, confusion = maximize()
        # Of each vote: the log probability of the label given, for each right label.
        evidence = np.log(confusion[votes.annotator, :, votes.label]) * weight[:, np.newaxis]
        sums = np.stack(
            [np.bincount(votes.item, evidence[:, label], votes.items) for label in range(labels)], axis=1
        )
        sums += np.log(prior)
        highest = sums.max(axis=1, keepdims=True)
        parts = np.exp(sums - highest)
        posterior = float((np.log(parts.sum(axis=1)) + highest[:, 0])[voted].sum())
        posterior += float((pseudo * np.log(confusion)).sum() + np.log(prior).sum() / labels)
        probabilities[voted] = (parts / parts.sum(axis=1, keepdims=True))[voted]
        converged = posterior - last <= _TOLERANCE * abs(posterior)
        last = posterior
    prior, confusion = maximize()
    return Aggregation(probabilities, prior, confusion, counts, done, converged)
