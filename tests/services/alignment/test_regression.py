"""Logistic regression."""

from __future__ import annotations

import numpy as np
import pytest

from services.alignment.regression import logistic


def test_the_regression_is_that_of_scikit_learn() -> None:
    """LogisticRegression 1.9.1 without a penalty."""
    column = np.arange(24) % 5 - 2.0
    outcome = ((np.arange(24) * 7) % 11 < 6).astype(float)
    found = logistic(np.stack([np.ones(24), column], axis=1), outcome, np.ones(24))
    assert found is not None
    assert found.tolist() == pytest.approx([0.150493, -0.260961], abs=1e-5)


def test_determined_outcomes_have_no_finite_effects() -> None:
    column = np.arange(10.0)
    design = np.stack([np.ones(10), column], axis=1)
    assert logistic(design, (column > 4).astype(float), np.ones(10)) is None
