"""Whether a judge answers differently than before: an exact test of repeated answers to the same candidates.

A candidate was judged ``base`` times when the monitoring began and ``new`` times in a check. While the judge
does not change, all of these answers are exchangeable, so every division of them into two groups of these
sizes is equally likely (Fisher 1935; Pitman 1937). The statistic is the number of verdicts that differ
between an answer of the base and a new one, over all such pairs and candidates. Its distribution is computed,
not simulated.

A monitor makes many checks. Each has the same share of the error that a year may have, so that the bounds of
all checks of a year hold together (Bonferroni): they are a confidence sequence for that horizon.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from statistics import median

import numpy as np

from dramaturg.results.equivalence import lower_bound, upper_bound

YEAR = timedelta(days=365.25)
ERROR = 0.01
"""The largest probability that an unchanged judge is found to have changed within a year."""
MAX_REPEATS = 7
"""The most answers to a candidate in each group: 3,432 divisions."""

Category = str
Verdict = Category | float
"""An outcome, or a score on a scale."""
Answer = Mapping[str, Verdict]
"""The verdicts of one answer by criterion."""
Answers = Mapping[str, Sequence[Answer]]
"""The answers to each candidate."""


@dataclass(frozen=True)
class Drift:
    """The figures of one check."""

    compared: int
    """The candidates with answers of both groups."""
    changed: int
    """Those of which the commonest verdict on a criterion differs between the groups."""
    lower: float
    """The lower bound of their share."""
    upper: float
    """The upper bound. With probability 1 - ``ERROR`` the bounds of all checks of a year hold."""
    p_value: float
    """The probability of as many differing verdicts, or more, if the judge has not changed."""
    level: float
    """The judge has drifted if the p-value is at most this."""

    @property
    def found(self) -> bool:
        """Whether the judge has drifted."""
        return self.p_value <= self.level


def level_of(interval: timedelta) -> float:
    """The error of one check, if a check is made after each interval of a year."""
    return ERROR / max(1, math.ceil(YEAR / interval))


def least_changed(base: int, new: int, level: float) -> int:
    """The fewest candidates that show drift, if all their answers agree within each group and differ between.

    Args:
        base: The answers to a candidate in the base.
        new: Those in a check.
        level: See ``level_of``.
    """
    extreme = (2 if base == new else 1) / math.comb(base + new, new)
    return math.ceil(math.log(level) / math.log(extreme))


def measure(base: Answers, new: Answers, level: float) -> Drift:
    """Compares the answers of a check with those of the base, for the candidates that have both."""
    pairs = [(base[one], new[one]) for one in base if base[one] and new.get(one)]
    observed, distributions, changed = 0, [], 0
    for old, fresh in pairs:
        answers = _categories([*old, *fresh])
        earlier, later = answers[: len(old)], answers[len(old) :]
        changed += any(map(_differs, zip(*earlier, strict=True), zip(*later, strict=True)))
        kinds = sorted(set(answers))
        distance = tuple(tuple(sum(map(str.__ne__, a, b)) for b in kinds) for a in kinds)
        counts = tuple(map(answers.count, kinds))
        chosen = np.array([*map(earlier.count, kinds)])
        observed += int(chosen @ np.array(distance) @ (counts - chosen))
        if len(kinds) > 1:
            distributions.append(_distribution(counts, distance, len(old)))
    bound = level / 2
    return Drift(
        compared=len(pairs),
        changed=changed,
        lower=lower_bound(changed, len(pairs), bound),
        upper=upper_bound(changed, len(pairs), bound),
        p_value=_tail(distributions, observed),
        level=level,
    )


def _categories(answers: Sequence[Answer]) -> Sequence[tuple[Category, ...]]:
    """The answers as categories by criterion. Scores are above the median of all answers, or not.

    The median is that of both groups, so it does not depend on how they are divided.
    """
    criteria = sorted({criterion for one in answers for criterion in one})
    medians = {}
    for criterion in criteria:
        scores = [score for one in answers if isinstance(score := one.get(criterion), float)]
        medians[criterion] = median(scores) if scores else 0.0

    def category(criterion: str, verdict: Verdict | None) -> Category:
        if isinstance(verdict, float):
            return "above" if verdict > medians[criterion] else "not above"
        return verdict or ""

    return [tuple(category(one, answer.get(one)) for one in criteria) for answer in answers]


def _differs(earlier: Sequence[Category], later: Sequence[Category]) -> bool:
    """Whether the commonest categories of two groups differ. A tie differs only if no winner is common."""
    return not _commonest(earlier) & _commonest(later)


def _commonest(categories: Sequence[Category]) -> set[Category]:
    counts = Counter(categories)
    most = max(counts.values())
    return {one for one, count in counts.items() if count == most}


@lru_cache(maxsize=1024)
def _distribution(counts: tuple[int, ...], distance: tuple[tuple[int, ...], ...], size: int) -> np.ndarray:
    """The probabilities of 0, 1, 2 ... differing verdicts of one candidate, over all divisions.

    Args:
        counts: How many answers of each kind there are.
        distance: The number of verdicts in which two kinds differ.
        size: The answers in one of the groups.
    """
    divisions = list(_divisions(counts, size))
    ways = np.array([math.prod(map(math.comb, counts, row)) for row in divisions], dtype=float)
    chosen = np.array(divisions)
    differing = np.einsum("nk,kl,nl->n", chosen, np.array(distance), counts - chosen)
    found = np.bincount(differing, weights=ways)
    return np.asarray(found / found.sum())


def _divisions(counts: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """The numbers of answers of each kind in a group of ``size``."""
    if len(counts) == 1:
        yield (size,)
        return
    rest = sum(counts[1:])
    for first in range(max(0, size - rest), min(counts[0], size) + 1):
        for others in _divisions(counts[1:], size - first):
            yield (first, *others)


_DIRECT = 4096
"""The length from which on distributions are convolved by Fourier transforms."""
_ROUNDING = 1e-12
"""More than the error of the transforms; added to the p-value, which is then never too small."""


def _tail(distributions: list[np.ndarray], observed: int) -> float:
    """The probability that the sum of independent numbers is at least ``observed``."""
    while len(distributions) > 1:
        pairs = zip(distributions[::2], distributions[1::2], strict=False)
        odd = distributions[-1:] if len(distributions) % 2 else []
        distributions = [_sum(*pair) for pair in pairs] + odd
    if not distributions:
        return 1.0
    return min(1.0, float(distributions[0][observed:].sum()) + _ROUNDING)


def _sum(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    if min(len(first), len(second)) < _DIRECT:
        return np.convolve(first, second)
    length = len(first) + len(second) - 1
    transformed = np.fft.rfft(first, length) * np.fft.rfft(second, length)
    return np.asarray(np.clip(np.fft.irfft(transformed, length), 0.0, None))
