"""Logistic regression."""

from __future__ import annotations

import numpy as np
import pytest

from services.alignment.regression import logistic


def test_the_regression_is_that_of_scikit_learn() -> None:
    """LogisticRegression 1.9.1 without a penalty."""
    column = np.arange(24) % 5 - 2.0
    outcome = ((np.arange(24) * 7) % 11 < 6).astype(float)
    found = logistic(np.stack([np.ones(24), column], axis=1), outcome, np.ones((1, 24)))
    assert found[0].tolist() == pytest.approx([0.150493, -0.260961], abs=1e-5)


def test_determined_outcomes_have_no_finite_effects() -> None:
    column = np.arange(10.0)
    design = np.stack([np.ones(10), column], axis=1)
    assert np.isnan(logistic(design, (column > 4).astype(float), np.ones((1, 10)))).all()


def test_each_of_several_regressions_is_the_one_that_it_is_alone() -> None:
    generator = np.random.default_rng(3)
    design = np.stack([np.ones(40), generator.normal(size=40), generator.normal(size=40)], axis=1)
    shares = generator.random((30, 40))
    weights = generator.integers(0, 3, (30, 40)).astype(float)
    weights[4] = 0  # a singular matrix
    weights[9, 2:] = 0
    shares[14] = design[:, 1] > 0
    together = logistic(design, shares, weights)
    alone = [
        logistic(design, one[np.newaxis], own[np.newaxis])[0]
        for one, own in zip(shares, weights, strict=True)
    ]
    np.testing.assert_allclose(together, np.stack(alone), rtol=1e-9)
    assert np.flatnonzero(np.isnan(together).any(axis=1)).tolist() == [4, 9, 14]


def test_a_checkpoint_may_end_it() -> None:
    def end() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        logistic(np.ones((3, 1)), np.array([0.0, 1.0, 1.0]), np.ones((2, 3)), end)
