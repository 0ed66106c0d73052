"""A second apply changes nothing: fields are as the API server stores them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.k8s.rendered import Rendering, every_rendering

Render = Callable[[], Rendering]

MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumes": "name",
    "imagePullSecrets": "name",
}
"""The keys by which the API server merges lists. An entry given twice is changed by every apply."""


def fields(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All fields of an object, with their paths."""
    yield path, value
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from fields(inner, (*path, str(name)))
    if isinstance(value, list):
        for inner in value:
            yield from fields(inner, (*path, "*"))


@every_rendering
def test_no_field_is_null(render: Render) -> None:
    """The API server drops it, and every apply sends it again."""
    for found in render().objects:
        empty = [".".join(path) for path, value in fields(found) if value is None]
        assert not empty, f"{found['kind']}/{found['metadata']['name']}: {empty}"


@every_rendering
def test_quantities_have_the_form_in_which_they_are_stored(render: Render) -> None:
    """``1000m`` is stored as ``1``, and ``1024Mi`` as ``1Gi``."""
    for found in render().objects:
        for path, value in fields(found):
            if len(path) < 2 or path[-2] not in {"requests", "limits"}:
                continue
            assert isinstance(value, str), path
            if milli := re.fullmatch(r"(\d+)m", value):
                assert int(milli[1]) % 1000, f"{path}: {value}"
            if binary := re.fullmatch(r"(\d+)(Ki|Mi|Gi)", value):
                assert int(binary[1]) % 1024, f"{path}: {value}"


@every_rendering
def test_no_entry_of_a_merged_list_is_given_twice(render: Render) -> None:
    for found in render().objects:
        for path, value in fields(found):
            if path and path[-1] in MERGE_KEYS and isinstance(value, list):
                keys = [entry[MERGE_KEYS[path[-1]]] for entry in value]
                assert len(keys) == len(set(keys)), f"{found['metadata']['name']}: {path}: {keys}"


@every_rendering
def test_what_the_server_would_fill_in_is_given_where_its_absence_is_a_change(render: Render) -> None:
    """A strategy without its type, and a port without its protocol, are merged with what is stored."""
    rendering = render()
    for deployment in rendering.of("Deployment"):
        strategy = deployment["spec"]["strategy"]
        assert strategy["type"] in {"RollingUpdate", "Recreate"}
        assert ("rollingUpdate" in strategy) == (strategy["type"] == "RollingUpdate")
    for policy in rendering.of("NetworkPolicy"):
        for direction in ("ingress", "egress"):
            for rule in policy["spec"].get(direction, []):
                assert all(port["protocol"] in {"TCP", "UDP"} for port in rule["ports"])
    for pod in rendering.pods():
        for entry in pod.container.get("env", []):
            assert isinstance(entry.get("value", ""), str), entry
