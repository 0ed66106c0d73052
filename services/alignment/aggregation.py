"""Right labels from those of several annotators, and which annotators err together.

If annotators err independently given the right label, the chance-corrected agreement of two is the product of
how well each agrees with the right label (one common factor; of two labels exactly, of more if errors are
spread alike). An agreement above the product is a conditional correlation of errors. It can be seen only
against other annotators: three always fit, and of four nothing says which two depend on each other. An error
that all share in the same proportion is never seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse, special

from dramaturg.service.threads import Checkpoint
from services.alignment.bootstrap import Array, Index, gather

MAX_DIAGNOSED = 100
"""The most annotators whose pairs are examined: those with the most items."""
FEWEST = 3
"""The fewest independent annotators whose labels say how good each is."""

_GROUPS = 50
_MOST_LABELS = 200
_COMPLEMENTS = ((1, 2, 3), (2, 1, 3), (3, 1, 2))
# The probability that annotators who err independently are said to depend on each other.
_ERROR = 0.01
# The probability that an annotator whose labels are drawn at random is said to agree with others.
_AGREEMENT_ERROR = 0.05
# Smaller correlations of errors change little.
_LEAST_CORRELATION = 0.05
_SWEEPS = 100
_DEPENDENCE_TOLERANCE = 1e-5
# Of an absolute residual below it, the weight is that of its square.
_SMALLEST_RESIDUAL = 0.01
# The largest correlation with the right label: of a smaller remainder a correlation is not stable.
_LARGEST_LOADING = 0.99


@dataclass(frozen=True)
class DependentPair:
    first: int
    second: int
    items: int
    """How many items both labelled."""
    correlation: float
    """The correlation of their errors given the right label, above 0 to 1."""


@dataclass(frozen=True)
class Dependence:
    pairs: Sequence[DependentPair]
    """The pairs whose errors are shown to be correlated, the strongest first."""
    weights: Array
    """The weight of each annotator's label: 1 if independent, 1 / m for each of m copies."""
    unidentified: str
    """Why the labels do not say how good each annotator is; empty: they do."""

    @property
    def effective(self) -> float:
        """The number of independent annotators that these are worth."""
        return float(self.weights.sum())


def diagnose(
    item: Index, annotator: Index, label: Index, names: Sequence[str], checkpoint: Checkpoint
) -> Dependence:
    """Finds the annotators whose errors are correlated, and whether the labels identify their quality.

    Args:
        item: The item of each label.
        annotator: Who gave it, as an index of ``names``.
        label: The label, as a number from 0.
        names: The annotators.
        checkpoint: Called between parts of the work; raises to end it.
    """
    labelled = np.bincount(annotator, minlength=len(names))
    chosen = np.sort(np.argsort(-labelled, kind="stable")[:MAX_DIAGNOSED])
    place = np.full(len(names), -1)
    place[chosen] = np.arange(chosen.size)
    known = place[annotator] >= 0
    counts = _Counts.make(item[known], place[annotator[known]], label[known], chosen.size, checkpoint)
    copies = counts.copies()
    firsts = np.unique(copies)
    pairs = [
        DependentPair(int(chosen[first]), int(chosen[copy]), int(counts.shared[first, copy]), 1.0)
        for copy, first in enumerate(copies.tolist())
        if copy != first
    ]
    found = np.zeros((0, 0))
    unidentified = ""
    if firsts.size < FEWEST:
        unidentified = f"{FEWEST} annotators that differ are needed, there are {firsts.size}"
    else:
        part = counts.of(firsts)
        agreeing, found, four_differ = part.conditional(checkpoint)
        dependent = np.argwhere(np.triu(found, 1) > 0)
        pairs += [
            DependentPair(
                int(chosen[firsts[one]]),
                int(chosen[firsts[other]]),
                int(counts.shared[firsts[one], firsts[other]]),
                float(found[one, other]),
            )
            for one, other in dependent.tolist()
        ]
        if agreeing < FEWEST:
            unidentified = f"{FEWEST} annotators that agree beyond chance are needed, there are {agreeing}"
        elif four_differ:
            unidentified = "two of four annotators err together, and nothing says which two"
    weights = np.ones(len(names))
    if found.size:
        weights[chosen[firsts]] = 1 / (1 + found.sum(axis=0))
    weights[chosen] = weights[chosen[copies]] / np.bincount(copies, minlength=chosen.size)[copies]
    if not unidentified and weights.sum() < FEWEST:
        unidentified = (
            f"annotators err together: they are worth {weights.sum():.2g} independent ones of {FEWEST}"
        )
    return Dependence(sorted(pairs, key=lambda pair: -pair.correlation), weights, unidentified)


@dataclass(frozen=True)
class _Counts:
    """Sums over groups of items, from which groups are deleted."""

    both: Array
    """Groups x annotators x annotators: the items that both labelled."""
    same: Array
    """Groups x annotators x annotators: those with the same label."""
    labels: Array
    """Groups x annotators x labels: how often each gave each of the most frequent labels."""

    @classmethod
    def make(
        cls, item: Index, annotator: Index, label: Index, annotators: int, checkpoint: Checkpoint
    ) -> _Counts:
        _, item = np.unique(item, return_inverse=True)
        _, label, often = np.unique(label, return_inverse=True, return_counts=True)
        items, labels = int(item.max()) + 1, int(label.max()) + 1
        groups = min(_GROUPS, items)
        ones = np.ones(item.size)
        gave = sparse.csr_array((ones, (item, annotator)), shape=(items, annotators))
        _, pair = np.unique(item * labels + label, return_inverse=True)
        alike = sparse.csr_array((ones, (pair, annotator)), shape=(int(pair.max()) + 1, annotators))
        item_of_pair = np.zeros(alike.shape[0], np.intp)
        item_of_pair[pair] = item
        both, same = [], []
        # The chance that two give one rare label is next to none.
        rank = np.argsort(np.argsort(-often, kind="stable"))[label]
        frequent = rank < _MOST_LABELS
        counts = np.zeros((groups, annotators, min(labels, _MOST_LABELS)))
        np.add.at(counts, (item[frequent] % groups, annotator[frequent], rank[frequent]), 1.0)
        for group in range(groups):
            checkpoint()
            part = gave[np.arange(group, items, groups)]
            both.append((part.T @ part).toarray())
            part = alike[np.flatnonzero(item_of_pair % groups == group)]
            same.append((part.T @ part).toarray())
        return cls(np.stack(both), np.stack(same), counts)

    def of(self, chosen: Index) -> _Counts:
        rows = np.ix_(np.arange(self.both.shape[0]), chosen, chosen)
        return _Counts(self.both[rows], self.same[rows], self.labels[:, chosen])

    @cached_property
    def shared(self) -> Array:
        total: Array = self.both.sum(axis=0)
        return total

    def copies(self) -> Index:
        """The first annotator that each is a copy of, itself if none.

        Two are copies if they never differ, and would by chance do so rarely if they agreed no better than
        either agrees with any other (1 percent over all pairs).
        """
        same = self.same.sum(axis=0)
        count = same.shape[0]
        agreement = np.divide(same, self.shared, out=np.zeros_like(same), where=self.shared > 0)
        copies = np.arange(count)
        pairs = max(1, count * (count - 1) // 2)
        for one in range(count):
            for other in range(one + 1, count):
                items = self.shared[one, other]
                if not items or same[one, other] < items or copies[other] != other:
                    continue
                alike = (same[one] == self.shared[one]) & (same[other] == self.shared[other])
                rest = agreement[:, ~alike][[one, other]]
                highest = float(rest.max(initial=0.0))
                if rest.size and items * np.log(max(highest, _DEPENDENCE_TOLERANCE)) < np.log(_ERROR / pairs):
                    copies[other] = copies[one]
        return copies

    def conditional(self, checkpoint: Checkpoint) -> tuple[int, Array, bool]:
        """How many annotators agree beyond chance, the correlations of errors, and whether four depend.

        Standard errors are those of the jackknife over groups of items. The correlations are those shown to
        be above 0 (one-sided, Bonferroni over all pairs); others are 0. Of four annotators the products of
        complementary correlations (tetrads, Spearman 1904) are equal if all err independently.
        """
        count = self.both.shape[1]
        totals = self._without(None)
        loadings, found = _fit(_correlations(*totals), totals[0])
        deleted = []
        for group in range(self.both.shape[0]):
            checkpoint()
            rest = self._without(group)
            deleted.append((rest, *_fit(_correlations(*rest), rest[0], start=loadings)))
        error = self._error(np.stack([one for _, one, _ in deleted]))
        agreeing = int((loadings > self._quantile(_AGREEMENT_ERROR) * error).sum())
        none = np.zeros((count, count))
        if count <= FEWEST:
            return agreeing, none, False
        if count == FEWEST + 1:
            tetrads = _tetrads(_correlations(*totals))
            error = self._error(np.stack([_tetrads(_correlations(*rest)) for rest, _, _ in deleted]))
            return (
                agreeing,
                none,
                bool((np.abs(tetrads) > self._quantile(_ERROR / (2 * tetrads.size)) * error).any()),
            )
        error = self._error(np.stack([other for _, _, other in deleted]))
        shown = (found > self._quantile(2 * _ERROR / (count * (count - 1))) * error) & (self.shared > 0)
        shown &= found >= _LEAST_CORRELATION
        np.fill_diagonal(shown, val=False)
        return agreeing, np.where(shown, np.clip(found, 0.0, 1.0), 0.0), False

    def _without(self, group: int | None) -> tuple[Array, Array, Array]:
        keep = np.arange(self.both.shape[0]) != (-1 if group is None else group)
        return self.both[keep].sum(axis=0), self.same[keep].sum(axis=0), self.labels[keep].sum(axis=0)

    def _error(self, deleted: Array) -> Array:
        groups = deleted.shape[0]
        error: Array = (groups - 1) / np.sqrt(groups) * np.std(deleted, axis=0)
        return error

    def _quantile(self, error: float) -> float:
        return float(special.stdtrit(max(1, self.both.shape[0] - 1), 1 - error))


def _correlations(both: Array, same: Array, labels: Array) -> Array:
    """The correlation of every two annotators' labels: their agreement beyond chance over its largest."""
    shares = labels / np.maximum(np.diagonal(both), 1.0)[:, np.newaxis]
    spread = np.maximum(1 - (shares**2).sum(axis=1), _DEPENDENCE_TOLERANCE)
    agreement = np.divide(same, both, out=np.zeros_like(same), where=both > 0)
    found = (agreement - shares @ shares.T) / np.sqrt(np.outer(spread, spread))
    return np.clip(np.where(both > 0, found, 0.0), -1.0, 1.0)


def _tetrads(correlations: Array) -> Array:
    """The differences of the products of complementary correlations of four annotators."""
    products = [correlations[0, one] * correlations[two, three] for one, two, three in _COMPLEMENTS]
    return np.array([products[0] - products[1], products[0] - products[2], products[1] - products[2]])


def _fit(correlations: Array, both: Array, start: Array | None = None) -> tuple[Array, Array]:
    """How well each annotator correlates with the right label, and the correlations of errors.

    The loadings have the least sum of absolute differences of each two's correlation from their product, by
    reweighted least squares, so that a few dependent pairs do not move them.
    """
    weight = both.copy()
    np.fill_diagonal(weight, 0.0)
    if start is None:
        mean = (weight * correlations).sum(axis=1) / np.maximum(weight.sum(axis=1), 1.0)
        start = np.sqrt(np.clip(mean, _SMALLEST_RESIDUAL, _LARGEST_LOADING))
    loadings = start
    for _ in range(_SWEEPS):
        residuals = correlations - np.outer(loadings, loadings)
        weights = weight / np.maximum(np.abs(residuals), _SMALLEST_RESIDUAL)
        new = (weights * correlations) @ loadings / np.maximum(weights @ loadings**2, _DEPENDENCE_TOLERANCE)
        # Half a step: all at once they would swing.
        new = np.clip((new + loadings) / 2, -_LARGEST_LOADING, _LARGEST_LOADING)
        if np.abs(new - loadings).max() < _DEPENDENCE_TOLERANCE:
            break
        loadings = new
    remainder = np.sqrt(1 - loadings**2)
    return loadings, (correlations - np.outer(loadings, loadings)) / np.outer(remainder, remainder)


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
