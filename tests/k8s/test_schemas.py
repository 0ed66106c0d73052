"""Every combination renders, and holds to the schemas of the Kubernetes versions that are supported."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import pytest

from tests.k8s.promises import PROMISES
from tests.k8s.rendered import (
    COMPONENTS,
    EGRESSES,
    Rendering,
    combined,
    every_rendering,
    folder,
)
from tests.support.kubernetes import NEWEST, OLDEST, fault


def assert_valid(rendering: Rendering, version: str) -> None:
    """Asserts that no object breaks its schema; unknown fields do. Custom resources have none here."""
    for found in rendering.objects:
        wrong = fault(json.dumps(found, sort_keys=True), version)
        assert not wrong, f"{rendering.name}, {found['kind']}/{found['metadata']['name']}: {wrong}"


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@every_rendering
def test_objects_hold_to_their_schemas(render: Callable[[], Rendering], version: str) -> None:
    assert_valid(render(), version)


@pytest.mark.slow
@pytest.mark.parametrize("pair", list(itertools.combinations(COMPONENTS, 2)), ids="+".join)
def test_features_combine_in_pairs(pair: tuple[str, str]) -> None:
    rendering = combined(pair)
    assert_valid(rendering, NEWEST)
    if pair != EGRESSES:
        assert [name for name in pair if not PROMISES[name](rendering)] == []
    names = [(found["apiVersion"], found["kind"], found["metadata"]["name"]) for found in rendering.objects]
    assert len(names) == len(set(names))


def test_all_components_combine() -> None:
    # Both replace the egress of generation to providers.
    for left_out in EGRESSES:
        rendering = combined(tuple(name for name in COMPONENTS if name != left_out))
        assert_valid(rendering, NEWEST)
        broken = [name for name in COMPONENTS if name != left_out and not PROMISES[name](rendering)]
        assert not broken


def test_every_component_promises_something_that_the_base_lacks() -> None:
    assert set(PROMISES) == set(COMPONENTS)
    assert [name for name, holds in PROMISES.items() if holds(folder("base"))] == []
