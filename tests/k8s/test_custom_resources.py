"""Custom resources hold to the types and to the schemas of the projects that they are of.

The packages ``@kubernetes-models/*`` carry TypeScript types and validators made from the projects' Go
sources. An object of JSON is a literal of TypeScript, and the compiler refuses a literal with a field that
its type does not have. The validators check required fields, lengths, ranges, patterns and enumerations.
"""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.k8s.rendered import COMPONENTS, EGRESSES, OVERLAYS, ROOT, combined, folder
from tests.support.kubernetes import Object

PACKAGES = {
    "cert-manager.io": "cert-manager",
    "gateway.networking.k8s.io": "gateway-api",
    "keda.sh": "keda",
    "monitoring.coreos.com": "prometheus-operator",
    "postgresql.cnpg.io": "cloudnative-pg",
}
MODULES = ROOT / ".tools" / "k8s" / "node_modules"
MOST_MATCHES = 8
"""How many matches Gateway API 1.1 allows in a rule of a GRPCRoute; the packages are of a newer version."""
VALIDATOR = """
import { readFileSync } from "node:fs";
for (const [module, value] of JSON.parse(readFileSync("resources.json", "utf-8"))) {
  const Model = (await import(module))[value.kind];
  try {
    new Model(value).validate();
  } catch (error) {
    console.log(`${value.kind}/${value.metadata.name}: ${error.message}`);
  }
}
"""


def custom_resources() -> list[Object]:
    """The custom resources of all components and overlays, each once."""
    together = combined(tuple(name for name in COMPONENTS if name not in EGRESSES))
    renderings = [together, *(folder(f"overlays/{name}") for name in OVERLAYS)]
    objects = [value for rendering in renderings for value in rendering.objects if group(value) in PACKAGES]
    return list({json.dumps(value, sort_keys=True): value for value in objects}.values())


def group(value: Object) -> str:
    """The API group of an object."""
    return str(value["apiVersion"]).rpartition("/")[0]


def module(value: Object) -> str:
    """The module of an object's kind, without the kind."""
    return f"@kubernetes-models/{PACKAGES[group(value)]}/{value['apiVersion']}"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder in which the packages are found."""
    if not (MODULES / ".bin" / "tsc").exists() or shutil.which("node") is None:
        pytest.skip("the types of the custom resources are not installed: run `make k8s-check`")
    (tmp_path / "node_modules").symlink_to(MODULES)
    return tmp_path


def compiled(resources: Sequence[Object], place: Path) -> str:
    """What the compiler says of the objects; empty where all hold to their types."""
    lines = []
    for index, value in enumerate(resources):
        lines.append(f'import type {{I{value["kind"]} as T{index}}} from "{module(value)}";')
        lines.append(f"export const value{index}: T{index} = {json.dumps(value)};")
    (place / "resources.ts").write_text("\n".join(lines), encoding="utf-8")
    options = "--noEmit --strict --skipLibCheck --module nodenext --moduleResolution nodenext"
    return said([MODULES / ".bin" / "tsc", *options.split(), "resources.ts"], place)


def validated(resources: Sequence[Object], place: Path) -> str:
    """What the validators say of the objects; empty where all hold to their schemas."""
    given = [(f"{module(value)}/{value['kind']}", value) for value in resources]
    (place / "resources.json").write_text(json.dumps(given), encoding="utf-8")
    (place / "validate.mjs").write_text(VALIDATOR, encoding="utf-8")
    return said(["node", "validate.mjs"], place)


def said(command: Sequence[str | Path], place: Path) -> str:
    """What a command prints in a folder."""
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_custom_resources_hold_to_their_types_and_schemas(place: Path) -> None:
    resources = custom_resources()
    assert {group(value) for value in resources} == set(PACKAGES)
    assert compiled(resources, place) == ""
    assert validated(resources, place) == ""


@pytest.mark.slow
def test_a_misspelt_field_and_a_list_that_is_too_long_are_seen(place: Path) -> None:
    scaled = copy.deepcopy(combined(("keda",)).one("ScaledObject", "gateway"))
    scaled["spec"]["minReplicas"] = scaled["spec"].pop("minReplicaCount")
    assert "'\"minReplicas\"' does not exist" in compiled([scaled], place)
    route = copy.deepcopy(combined(("gateway-api",)).one("GRPCRoute", "dramaturg"))
    route["spec"]["rules"][0]["matches"] *= 20
    too_many = "GRPCRoute/dramaturg: data/spec/rules/0/matches must NOT have more than 64 items"
    assert too_many in validated([route], place)


def test_rules_of_the_route_are_short_enough_for_the_oldest_gateway_api() -> None:
    rules = combined(("gateway-api",)).one("GRPCRoute", "dramaturg")["spec"]["rules"]
    assert max(len(rule["matches"]) for rule in rules) <= MOST_MATCHES
