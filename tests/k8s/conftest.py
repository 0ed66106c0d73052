"""Marks every test of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They render for minutes, so they are a stage of their own."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.k8s)
