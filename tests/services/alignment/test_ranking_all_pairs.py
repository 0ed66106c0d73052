"""All pairs of systems at once: how often equal systems are said to differ, and whether ranks hold together.

Scenarios are drawn, not listed: numbers of systems and tasks, verdicts, ratings and scores with long tails,
difficulties of tasks, several items a task, values that are missing, and systems of which some are equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse, stats

from services.alignment.bootstrap import Resampling
from services.alignment.estimates import holm
from services.alignment.ranking import AllPairs, compare_all

Array = NDArray[np.float64]
ERROR = 0.05


@dataclass(frozen=True)
class Scenario:
    kind: str
    units: int
    size: int
    missing: float
    spread: float
    qualities: Array
    """By system, in standard deviations of an item; equal ones are equal systems."""

    def draw(self, generator: np.random.Generator) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Sums and counts by unit and system."""
        shape = (self.units, self.size, self.qualities.size)
        tasks = self.spread * generator.normal(size=(self.units, 1, 1))
        own = self.spread * generator.normal(size=(self.units, 1, self.qualities.size))
        noise = generator.standard_t(3, shape) if self.kind == "tails" else generator.normal(size=shape)
        values = tasks + own + noise + self.qualities
        if self.kind == "verdicts":
            values = (values > -1).astype(np.float64)
        if self.kind == "ratings":
            values = np.clip(np.round(4 + values), 1, 5)
        if self.kind == "skewed":
            values = np.exp(np.minimum(values, 20))
        present = generator.random(shape) >= self.missing
        present[0] = True
        sums, counts = (values * present).sum(axis=1), present.sum(axis=1).astype(np.float64)
        return sparse.csr_array(sums), sparse.csr_array(counts)


def scenario(seed: int) -> Scenario:
    generator = np.random.default_rng(seed)
    systems = int(generator.choice([2, 3, 5, 10, 20, 40]))
    steps = generator.integers(0, int(generator.choice([1, 2, 4])), systems)
    return Scenario(
        kind=str(generator.choice(["verdicts", "ratings", "scores", "tails", "skewed"])),
        units=int(generator.choice([5, 10, 20, 50, 150])),
        size=int(generator.choice([1, 3, 7])),
        missing=float(generator.choice([0.0, 0.0, 0.1, 0.3])),
        spread=float(generator.choice([0.0, 0.5, 1.5])),
        qualities=steps.astype(np.float64) * generator.choice([0.2, 1.0]),
    )


def compared(sums: sparse.csr_array, counts: sparse.csr_array, resamples: int = 199) -> AllPairs:
    return compare_all(sums, counts, 1, Resampling(resamples, 3, 1 - ERROR, lambda: None))


def errors(one: Scenario, repetitions: int) -> tuple[float, float]:
    """How often some equal systems are said to differ, and how often some rank is outside of its interval."""
    generator = np.random.default_rng(11)
    equal = one.qualities[:, np.newaxis] == one.qualities
    lowest = 1 + (one.qualities > one.qualities[:, np.newaxis]).sum(axis=1)
    highest = lowest + equal.sum(axis=1) - 1
    differ = outside = 0
    for _ in range(repetitions):
        found = compared(*one.draw(generator))
        differ += bool((found.adjusted[equal] <= ERROR).any())
        ranks = np.array([found.rank_interval(system) for system in range(one.qualities.size)])
        outside += bool(((ranks[:, 0] > lowest) | (ranks[:, 1] < highest)).any())
    return differ / repetitions, outside / repetitions


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_equal_systems_rarely_differ_and_ranks_hold_together() -> None:
    repetitions, scenarios = 150, 60
    found = np.array([errors(scenario(seed), repetitions) for seed in range(scenarios)])
    standard = (ERROR * (1 - ERROR) / repetitions) ** 0.5
    assert found.max() <= ERROR + 4 * standard
    assert found.mean(axis=0).max() <= ERROR + 3 * standard / scenarios**0.5


def test_of_twenty_equal_systems_the_first_is_not_better_than_some_other() -> None:
    """Tests against the first with Holm's adjustment, as if it had been planned, find one far too often."""
    one = Scenario("scores", 30, 1, 0.0, 0.0, np.zeros(20))
    generator = np.random.default_rng(5)
    planned = together = 0
    repetitions = 200
    for _ in range(repetitions):
        sums, counts = one.draw(generator)
        scores = sums.toarray()
        first = int(scores.mean(axis=0).argmax())
        tests = [
            float(stats.ttest_rel(scores[:, first], scores[:, other]).pvalue)
            for other in range(20)
            if other != first
        ]
        planned += min(p for p in holm(tests) if p is not None) <= ERROR
        together += bool((compared(sums, counts).adjusted <= ERROR).any())
    assert planned / repetitions > 0.15
    assert together / repetitions <= ERROR + 3 * (ERROR * (1 - ERROR) / repetitions) ** 0.5


def test_clear_differences_are_found_and_ranks_are_narrow() -> None:
    one = Scenario("scores", 40, 1, 0.1, 0.5, np.array([0.0, 0.0, 2.0, 4.0]))
    found = compared(*one.draw(np.random.default_rng(2)), resamples=999)
    assert [found.rank_interval(system) for system in range(4)] == [(3, 4), (3, 4), (2, 2), (1, 1)]
    difference = found.difference(3, 2, 40)
    assert difference.lower is not None
    assert difference.upper is not None
    assert difference.lower < 2 < difference.upper
    assert found.p[3, 2] <= found.adjusted[3, 2] == found.adjusted[2, 3]


def test_few_units_enumerate_all_signs() -> None:
    sums = sparse.csr_array(np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 1.0]]))
    found = compared(sums, sparse.csr_array(np.ones((3, 2))), resamples=7)
    # Of eight assignments those of equal signs are as extreme.
    assert found.p[0, 1] == found.adjusted[0, 1] == 0.25
    assert found.differences[0, 1] == pytest.approx(5 / 3)
    assert found.difference(0, 1, 3).withheld == "3 items or clusters are too few"


def test_what_all_systems_share_does_not_matter() -> None:
    generator = np.random.default_rng(4)
    scores = generator.normal(size=(30, 5))
    counts = sparse.csr_array(np.ones((30, 5)))
    plain = compared(sparse.csr_array(scores), counts)
    shifted = compared(sparse.csr_array(scores + generator.normal(0, 50, (30, 1))), counts)
    assert plain.adjusted == pytest.approx(shifted.adjusted)


def test_many_units_are_summed_in_blocks() -> None:
    generator = np.random.default_rng(6)
    scores = generator.normal(size=(5000, 3)) + np.array([0.0, 0.0, 0.2])
    found = compared(sparse.csr_array(scores), sparse.csr_array(np.ones((5000, 3))))
    assert found.differences[2, 0] == pytest.approx(scores[:, 2].mean() - scores[:, 0].mean())
    expected = (scores[:, 2] - scores[:, 0]).std(ddof=1) / 5000**0.5
    assert found.errors[2, 0] == pytest.approx(expected, rel=0.1)
    assert found.adjusted[2, 0] <= 0.01 < found.adjusted[1, 0]
