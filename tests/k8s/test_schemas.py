"""Every combination renders, and holds to the schemas of the Kubernetes versions that are supported."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator

import kubernetes_validate
import pytest
from kubernetes_validate import utils

from tests.k8s.promises import PROMISES
from tests.k8s.rendered import (
    ADDING_PODS,
    COMPONENTS,
    EGRESSES,
    K8S,
    OVERLAYS,
    PATCHING_SERVICES,
    Rendering,
    combined,
    every_rendering,
    folder,
    ordered,
)

OLDEST, NEWEST = "1.31", "1.36"
"""The versions of Kubernetes that the manifests are for."""


@pytest.fixture(autouse=True, scope="module")
def _definitions_read_once() -> Iterator[None]:
    """The package reads its definitions, some megabytes, anew for every object."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "schema_contents", functools.cache(utils.schema_contents))
        yield


def assert_valid(rendering: Rendering, version: str) -> None:
    """Asserts that no object breaks its schema; unknown fields do. Custom resources have none here."""
    for found in rendering.objects:
        fault = fault_of(json.dumps(found, sort_keys=True), version)
        assert not fault, f"{rendering.name}, {found['kind']}/{found['metadata']['name']}: {fault}"


@functools.cache
def fault_of(found: str, version: str) -> str:
    """What is wrong with an object, given as JSON. Most objects are the same in every rendering."""
    value = json.loads(found)
    try:
        kubernetes_validate.validate(value, version, strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        custom = "." in value["apiVersion"].split("/")[0]
        return "" if custom else f"Kubernetes {version} has no {value['apiVersion']} {value['kind']}"
    except kubernetes_validate.ValidationError as error:
        return f"Kubernetes {version}: {error.message}"
    return ""


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@every_rendering
def test_objects_hold_to_their_schemas(render: Callable[[], Rendering], version: str) -> None:
    assert_valid(render(), version)


def test_components_that_patch_every_service_are_known() -> None:
    """What a component patches in the service that another adds, it misses when it is listed before it."""
    alone = combined(("edges",)).one("Deployment", "edges")
    patching = {
        name
        for name in COMPONENTS
        if name not in ADDING_PODS and combined(("edges", name)).one("Deployment", "edges") != alone
    }
    assert patching == set(PATCHING_SERVICES)


@pytest.mark.slow
@pytest.mark.parametrize("pair", list(itertools.permutations(COMPONENTS, 2)), ids="+".join)
def test_components_combine_in_pairs_in_either_order(pair: tuple[str, str]) -> None:
    if pair[1] in ADDING_PODS and pair[0] in PATCHING_SERVICES:
        with pytest.raises(AssertionError, match="dramaturg~1services"):
            combined(pair)
        return
    if set(pair) == set(EGRESSES):
        with pytest.raises(AssertionError, match="testing"):
            combined(pair)
        return
    rendering = combined(pair)
    assert_valid(rendering, NEWEST)
    assert [name for name in pair if not PROMISES[name](rendering)] == []
    names = [(found["apiVersion"], found["kind"], found["metadata"]["name"]) for found in rendering.objects]
    assert len(names) == len(set(names))


def test_all_components_combine() -> None:
    # Both replace the egress of generation to providers.
    for left_out in EGRESSES:
        rendering = combined(ordered(left_out))
        assert_valid(rendering, NEWEST)
        broken = [name for name in COMPONENTS if name != left_out and not PROMISES[name](rendering)]
        assert not broken


def test_every_component_promises_something_that_the_base_lacks() -> None:
    assert set(PROMISES) == set(COMPONENTS)
    assert [name for name, holds in PROMISES.items() if holds(folder("base"))] == []


@every_rendering
def test_everything_is_in_the_one_namespace(render: Callable[[], Rendering]) -> None:
    for found in render().objects:
        if found["kind"] != "Namespace":
            assert found["metadata"]["namespace"] == "dramaturg", found["metadata"]["name"]


@every_rendering
def test_nothing_of_the_templates_is_left(render: Callable[[], Rendering]) -> None:
    """The generic objects carry stand-ins, each of which a service's facts replace."""
    rendering = render()
    assert not rendering.of("Facts")
    for pod in rendering.services():
        assert pod.container["args" if "args" in pod.container else "image"] not in (["name"], "name")
        assert pod.name != "name"
        assert pod.labels["app.kubernetes.io/component"] in {"gateway", "service"}


def test_every_folder_is_tried() -> None:
    assert set(OVERLAYS) == {"local", "production"}
    kustomizations = {path.parent for path in K8S.rglob("kustomization.yaml")}
    used = {"namespace", "service", "base", "calls", "components", "overlays", "examples"}
    assert {path.relative_to(K8S).parts[0] for path in kustomizations} == used
