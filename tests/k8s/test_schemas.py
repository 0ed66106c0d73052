"""Every combination renders, and holds to the rules and to the schemas of the supported Kubernetes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import pytest

from tests.k8s.rendered import (
    COMPONENTS,
    EGRESSES,
    EXPECTED,
    Rendering,
    combined,
    every_rendering,
    faults,
    folder,
)
from tests.k8s.test_policies import broken
from tests.support.kubernetes import NEWEST, OLDEST, fault


def assert_valid(rendering: Rendering, version: str) -> None:
    """Asserts that no object breaks its schema; unknown fields do. Custom resources have none here."""
    for found in rendering.objects:
        wrong = fault(json.dumps(found, sort_keys=True), version)
        assert not wrong, f"{rendering.name}, {found['kind']}/{found['metadata']['name']}: {wrong}"


def unkept(rendering: Rendering, name: str) -> list[str]:
    """What a feature promises of a rendering that contains it, whatever stands beside it, and is not so."""
    return faults(rendering, EXPECTED["features"][name]["promises"])


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@every_rendering
def test_objects_hold_to_their_schemas(render: Callable[[], Rendering], version: str) -> None:
    assert_valid(render(), version)


# Both of EGRESSES replace the egress of generation to providers.
@pytest.mark.parametrize(
    "names",
    [
        *(pytest.param(pair, marks=pytest.mark.slow) for pair in itertools.combinations(COMPONENTS, 2)),
        *(tuple(name for name in COMPONENTS if name != left_out) for left_out in EGRESSES),
    ],
    ids="+".join,
)
def test_features_combine(names: tuple[str, ...]) -> None:
    rendering = combined(names)
    assert_valid(rendering, NEWEST)
    if names != EGRESSES:
        assert [found for name in names for found in unkept(rendering, name)] == []
    # The model server of the example is not the chart's.
    assert [found for found in broken(rendering) if not found.startswith("Deployment/vllm")] == []
    places = [(found["apiVersion"], found["kind"], found["metadata"]["name"]) for found in rendering.objects]
    assert len(places) == len(set(places))


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_feature_promises_something_that_the_base_lacks(name: str) -> None:
    assert unkept(folder("base"), name)
    assert not unkept(combined((name,)), name)
