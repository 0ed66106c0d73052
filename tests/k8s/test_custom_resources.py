"""Custom resources hold to the types of the projects that they are of.

The packages ``@kubernetes-models/*`` carry TypeScript types made from the projects' Go sources. An object of
JSON is a literal of TypeScript, and the compiler refuses a literal with a field that its type does not have.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.k8s.rendered import COMPONENTS, ROOT, Object, combined, folder

PACKAGES = {
    "cert-manager.io": "cert-manager",
    "gateway.networking.k8s.io": "gateway-api",
    "keda.sh": "keda",
    "monitoring.coreos.com": "prometheus-operator",
    "postgresql.cnpg.io": "cloudnative-pg",
}
MODULES = ROOT / ".tools" / "k8s" / "node_modules"


def custom_resources() -> list[Object]:
    """The custom resources of all components and overlays, each once."""
    renderings = [
        *(combined((name,)) for name in COMPONENTS),
        folder("overlays/local"),
        folder("overlays/production"),
    ]
    found = {
        json.dumps(value, sort_keys=True): value
        for rendering in renderings
        for value in rendering.objects
        if group(value) in PACKAGES
    }
    return list(found.values())


def group(value: Object) -> str:
    """The API group of an object."""
    return str(value["apiVersion"]).rpartition("/")[0]


def compiled(resources: Sequence[Object], place: Path) -> str:
    """What the compiler says of the objects; empty where all hold to their types."""
    compiler = MODULES / ".bin" / "tsc"
    if not compiler.exists() or shutil.which("node") is None:
        pytest.skip("the types of the custom resources are not installed: run `make k8s-check`")
    lines = []
    for index, value in enumerate(resources):
        module = f"@kubernetes-models/{PACKAGES[group(value)]}/{value['apiVersion']}"
        lines.append(f'import type {{I{value["kind"]} as T{index}}} from "{module}";')
        lines.append(f"export const value{index}: T{index} = {json.dumps(value)};")
    (place / "resources.ts").write_text("\n".join(lines), encoding="utf-8")
    (place / "node_modules").symlink_to(MODULES)
    options = [
        "--noEmit",
        "--strict",
        "--skipLibCheck",
        "--module",
        "nodenext",
        "--moduleResolution",
        "nodenext",
    ]
    done = subprocess.run(
        [compiler, *options, "resources.ts"], cwd=place, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_custom_resources_hold_to_their_types(tmp_path: Path) -> None:
    resources = custom_resources()
    assert {group(value) for value in resources} == set(PACKAGES)
    assert compiled(resources, tmp_path) == ""


@pytest.mark.slow
def test_a_misspelt_field_is_seen(tmp_path: Path) -> None:
    scaled = json.loads(json.dumps(combined(("keda",)).one("ScaledObject", "gateway")))
    scaled["spec"]["minReplicas"] = scaled["spec"].pop("minReplicaCount")
    assert "'\"minReplicas\"' does not exist" in compiled([scaled], tmp_path)
