"""How often the gate says GO to systems that are worse by the margin, and to systems that are not worse.

Each of G tasks has seven verdicts. Losses and gains are beta-binomial by task with an intra-cluster
correlation, or all seven verdicts of a task are one draw with that probability ("copied"). The tables in
docs/alignment.md have the same scenarios with 20,000 repetitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from services.alignment.accuracy.confusion import AbstentionPolicy
from services.alignment.bootstrap import Resampling
from services.alignment.comparison import bounded
from services.alignment.comparison.difference import PairedValues
from services.alignment.comparison.model import Design

ITEMS = 7


@dataclass(frozen=True)
class Scenario:
    tasks: int
    correlation: float
    margin: float
    gains: float
    """The share of verdicts that are gained, independently of those lost."""
    difference: float
    """The true difference."""
    copied: bool = False
    """Whether tasks change as wholes."""
    span: float | None = 1.0


def go_rate(scenario: Scenario, repetitions: int, seed: int = 1) -> float:
    generator = np.random.default_rng(seed)
    design = Design(
        baseline="old",
        verdicts=scenario.span is not None,
        clustered=True,
        lowest=0.0,
        highest=scenario.span,
        margin=scenario.margin,
        power=0.8,
        permutations=99,
        policy=AbstentionPolicy.EXCLUDED,
        every_group=False,
        resampling=Resampling(0, 1, 0.95, lambda: None),
    )
    sizes = np.full(scenario.tasks, float(ITEMS))
    codes = np.repeat(np.arange(scenario.tasks), ITEMS)
    known: dict[bytes, bool] = {}
    passed = 0
    for _ in range(repetitions):
        losses, gains = _changes(generator, scenario)
        patterns = np.sort(losses * (ITEMS + 1) + gains)
        key = patterns.tobytes()
        if key not in known:
            lost, gained = (part[:, np.newaxis] for part in np.divmod(patterns, ITEMS + 1))
            place = np.arange(ITEMS)
            old = (place < lost).astype(np.float64).ravel()
            new = (place >= ITEMS - gained).astype(np.float64).ravel()
            lower = PairedValues(old, new, design, codes, sizes).difference(0.95).lower
            known[key] = lower is not None and lower >= -scenario.margin
        passed += known[key]
    return passed / repetitions


def _changes(
    generator: np.random.Generator, scenario: Scenario
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of verdicts lost and gained by task."""
    share = scenario.gains - scenario.difference
    if not scenario.copied:
        losses = _counts(generator, share, scenario)
        return losses, np.minimum(_counts(generator, scenario.gains, scenario), ITEMS - losses)
    shares = [share, scenario.gains, 1 - share - scenario.gains]
    alone = generator.multinomial(ITEMS, shares, scenario.tasks)
    wholes = ITEMS * generator.multinomial(1, shares, scenario.tasks)
    whole = generator.random((scenario.tasks, 1)) < scenario.correlation
    losses, gains, _ = np.where(whole, wholes, alone).T
    return losses, gains


def _counts(generator: np.random.Generator, share: float, scenario: Scenario) -> NDArray[np.int64]:
    if share <= 0:
        return np.zeros(scenario.tasks, np.int64)
    if not scenario.correlation:
        return generator.binomial(ITEMS, share, scenario.tasks)
    total = 1 / scenario.correlation - 1
    shares = generator.beta(share * total, (1 - share) * total, scenario.tasks)
    return generator.binomial(ITEMS, shares)


SCENARIOS = [
    *(
        Scenario(tasks, correlation, margin, gains, -margin)
        for tasks, margin, correlation, gains in product(
            (20, 50, 200), (0.02, 0.05), (0.0, 0.3, 0.6), (0.0, 0.02, 0.05)
        )
    ),
    *(
        Scenario(tasks, correlation, margin, gains, -margin, copied=True)
        for tasks, margin, correlation, gains in product(
            (20, 50, 200), (0.02, 0.05), (0.3, 0.6), (0.02, 0.05)
        )
    ),
]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_system_that_is_worse_by_the_margin_is_rarely_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "_DRAWS", 2000)
    rates = {scenario: go_rate(scenario, 1500) for scenario in SCENARIOS}
    # Four standard errors of the simulation above .03.
    assert not {scenario: rate for scenario, rate in rates.items() if rate > 0.0476}
    # Tasks that change as wholes, of which Student's interval has a mean of .051: the error is .001.
    assert np.mean([rate for scenario, rate in rates.items() if scenario.copied]) <= 0.022


@pytest.mark.parametrize("correlation", [0.0, 0.6])
@pytest.mark.parametrize("tasks", [20, 50])
def test_sparse_losses_are_rarely_go(tasks: int, correlation: float) -> None:
    """Student's interval has .07 to .15 here."""
    assert go_rate(Scenario(tasks, correlation, 0.05, 0.0, -0.05), 200) <= 0.03


@pytest.mark.parametrize(
    ("scenario", "power"),
    [
        # Student's interval, where its false GO is at most .03: .466, .845, .296, .674.
        (Scenario(20, 0.0, 0.05, 0.05, 0.0), 0.423),
        (Scenario(50, 0.0, 0.05, 0.05, 0.0), 0.796),
        (Scenario(200, 0.3, 0.02, 0.05, 0.0), 0.287),
        (Scenario(200, 0.0, 0.02, 0.05, 0.0), 0.663),
        # Where verdicts change rarely, power is the price: Student's has .993.
        (Scenario(50, 0.0, 0.05, 0.02, 0.0), 0.801),
    ],
)
def test_power_where_verdicts_move_both_ways(scenario: Scenario, power: float) -> None:
    repetitions = 300
    error = (power * (1 - power) / repetitions) ** 0.5
    assert abs(go_rate(scenario, repetitions) - power) <= 3.5 * error


def test_identical_runs_of_enough_tasks_are_go() -> None:
    assert go_rate(Scenario(200, 0.0, 0.02, 0.0, 0.0), 1) == 1
    assert go_rate(Scenario(50, 0.0, 0.05, 0.0, 0.0), 1) == 0
