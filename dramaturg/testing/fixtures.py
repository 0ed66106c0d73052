"""The fakes as pytest fixtures, served in a thread, for tests that are not asynchronous.

They are not loaded by themselves. A test suite names them in its ``conftest.py``:

    pytest_plugins = ["dramaturg.testing.fixtures"]
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dramaturg.testing.generation import FakeGeneration
from dramaturg.testing.servers import FakeJudge, in_thread, serve


@pytest.fixture
def fake_generation() -> FakeGeneration:
    """A fake generation service; ``generation_target`` serves it."""
    return FakeGeneration()


@pytest.fixture
def generation_target(fake_generation: FakeGeneration) -> Iterator[str]:
    """The address at which ``fake_generation`` is served."""
    with in_thread(serve(fake_generation.contract())) as server:
        yield server.target


@pytest.fixture
def fake_judge() -> FakeJudge:
    """A fake judge; ``judge_target`` serves it."""
    return FakeJudge()


@pytest.fixture
def judge_target(fake_judge: FakeJudge) -> Iterator[str]:
    """The address at which ``fake_judge`` is served."""
    with in_thread(serve(fake_judge.contract())) as server:
        yield server.target
