"""The chart, rendered by Helm's own library."""

from __future__ import annotations

import copy
import functools
import re
import tomllib
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.k8s.rendered import K8S, Object, Rendering

CHART = K8S / "chart"
HOOK = "helm.sh/hook"


def render(values: Mapping[str, Any] | None = None, *, upgrade: bool = False) -> Rendering:
    """All objects of a release, those of hooks included. Skips the test without the library."""
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed: run `make k8s-check`")
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(dict(values or {}))
        rendered = chart.render(
            dict(values or {}),
            name="dramaturg",
            namespace="dramaturg",
            is_install=not upgrade,
            is_upgrade=upgrade,
        )
    texts = [text for name, text in sorted(rendered.items()) if not name.endswith("NOTES.txt")]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    objects = [found for text in texts for found in yaml.load_all(text, loader) if found is not None]
    return Rendering("chart", objects)


@functools.cache
def production() -> Rendering:
    """The chart with the values of production."""
    return render(yaml.safe_load((CHART / "production.yaml").read_text(encoding="utf-8")))


def is_test(found: Object) -> bool:
    """Whether an object belongs to ``helm test``."""
    return bool(found["metadata"].get("annotations", {}).get(HOOK) == "test")


def comparable(rendering: Rendering) -> dict[tuple[str, str], Object]:
    """The objects by kind and name, without what only one of the two tools writes.

    These are hashes of kustomize in the names of ConfigMaps, annotations, the labels of Helm, and the order
    of lists that are merged by a key. Configuration is compared as parsed TOML.
    """
    hashed = {
        found["metadata"]["name"]: re.sub(r"-[a-z0-9]{10}$", "", found["metadata"]["name"])
        for found in rendering.of("ConfigMap")
    }
    objects = {}
    for found in rendering.objects:
        if is_test(found):
            continue
        one = _normal(copy.deepcopy(found), hashed)
        metadata = one["metadata"]
        for label in ("app.kubernetes.io/managed-by", "helm.sh/chart"):
            metadata.get("labels", {}).pop(label, None)
        metadata.pop("annotations", None) if one["kind"] != "ScaledObject" else None
        one.get("spec", {}).get("template", {}).get("metadata", {}).pop("annotations", None)
        if not metadata.get("labels", True):
            del metadata["labels"]
        if one["kind"] == "ConfigMap":
            metadata["name"] = hashed[metadata["name"]]
            one["data"] = {
                name: tomllib.loads(text) if name.endswith(".toml") else text
                for name, text in one["data"].items()
            }
        objects[one["kind"], metadata["name"]] = one
    return objects


def _normal(value: Any, hashed: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        if set(value) == {"name"} and value["name"] in hashed:
            return {"name": hashed[value["name"]]}
        return {name: _normal(inner, hashed) for name, inner in value.items()}
    if isinstance(value, list):
        return sorted((_normal(inner, hashed) for inner in value), key=_order)
    return value


def _order(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("mountPath") or value.get("name") or sorted(value.items(), key=str))
    return str(value)
