"""Stands in for kubectl and helm of a reader who has a cluster: checks what they are given.

    python -m tests.support.command_cluster kubectl|helm ARGUMENT...

A kustomization is built by the kubectl that is installed. A chart has to accept its values, and is rendered
where Helm's library is installed (`make k8s-check`). An object that is named has to be in the manifests of
production.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from jsonschema import validate

from tests.support.command_line import ROOT

MANIFESTS = ROOT / "k8s" / "rendered" / "production" / "manifests.yaml"


def kubectl(arguments: Sequence[str]) -> None:
    """Does what a command of kubectl needs no cluster for."""
    options = [one for one in arguments if one.startswith("-")]
    verb, *words = [
        one
        for before, one in zip(("", *arguments), arguments, strict=False)
        if not one.startswith("-") and before not in {"-n", "-k", "-f"}
    ]
    if "-k" in options:
        _build(arguments[arguments.index("-k") + 1])
    elif "-f" in options:
        _objects(sys.stdin.read())
    elif verb == "get":
        assert words, "names no kind of object"
    elif "--ignore-not-found" not in options:
        place = " ".join(words[1:] if verb == "rollout" else words)
        kind, *names = place.replace("/", " ").split()
        there = {(one["kind"].lower(), one["metadata"]["name"]) for one in _objects(MANIFESTS.read_text())}
        assert names, "names no object"
        assert all((kind, name) in there for name in names), f"the manifests have no {place}"


def helm(arguments: Sequence[str]) -> None:
    """Checks the values of an installation, and renders the chart."""
    verb, _, chart, *rest = arguments
    assert verb == "install"
    values: dict[str, object] = {}
    for option, given in pairwise(rest):
        if option == "--set":
            name, _, value = given.partition("=")
            values[name] = yaml.safe_load(value)
    # A misspelt path or value fails here, as in Helm.
    schema = yaml.safe_load(Path(chart, "values.schema.json").read_text(encoding="utf-8"))
    default = yaml.safe_load(Path(chart, "values.yaml").read_text(encoding="utf-8"))
    assert values.keys() <= default.keys(), f"the chart has no value {values.keys() - default.keys()}"
    validate(default | values, schema)
    if importlib.util.find_spec("helm_python"):
        from tests.k8s.rendered import render

        assert render(values).objects


def _build(folder: str) -> None:
    # The first folder of PATH has this program under kubectl's name.
    path = os.environ["PATH"].partition(":")[2]
    command = shutil.which("kubectl", path=path)
    assert command, "kubectl is not installed"
    built = subprocess.run([command, "kustomize", folder], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert _objects(built.stdout)


def _objects(text: str) -> list[dict[str, Any]]:
    found = [one for one in yaml.safe_load_all(text) if one]
    assert all({"apiVersion", "kind", "metadata"} <= one.keys() for one in found)
    return found


if __name__ == "__main__":
    {"kubectl": kubectl, "helm": helm}[sys.argv[1]](sys.argv[2:])
