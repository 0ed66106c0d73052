from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.evaluations import in_a_thread
from tests.support.graph_evaluations import serve_graph_service


@pytest.fixture(scope="package")
def graph() -> Iterator[str]:
    """The target of a real graph service."""
    with in_a_thread(serve_graph_service) as target:
        yield target
