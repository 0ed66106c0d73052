"""Manifests as kustomize renders them, and what of them the tests ask for."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
K8S = ROOT / "k8s"
OVERLAYS = tuple(sorted(path.name for path in (K8S / "overlays").iterdir() if path.is_dir()))
EXAMPLES = tuple(sorted(path.name for path in (K8S / "examples").iterdir() if path.is_dir()))
COMPONENTS = tuple(sorted(path.name for path in (K8S / "components").iterdir() if path.is_dir()))

FAKE_SECRET = "postgresql://user:password@store-rw:5432/dramaturg"
"""Stands for the value of every Secret: manifests have none."""

COREDNS_SECONDS = 5
"""The time to live of what CoreDNS's plugin ``kubernetes`` answers, by default."""

PATCHING_SERVICES = ("assigned-uids", "cpu-limits", "mtls", "tracing")
"""Components that patch every service. One that adds a pod fails to render after them."""

ADDING_PODS = ("edges", "migration", "postgres", "vllm")
"""Components that add pods."""

EGRESSES = ("egress-proxy", "vllm")
"""Components that replace the egress of generation. One excludes the other."""

Object = dict[str, Any]


@dataclass(frozen=True)
class Pod:
    """A pod template, and the object that it is of."""

    owner: str
    """The object as ``Kind/name``."""
    labels: Mapping[str, str]
    """The labels that policies and services select by."""
    spec: Object
    """The pod's specification."""

    @property
    def name(self) -> str:
        """What the pod is called in policies: its label ``app.kubernetes.io/name``."""
        return self.labels["app.kubernetes.io/name"]

    @property
    def container(self) -> Object:
        """Its one container."""
        (container,) = self.spec["containers"]
        return dict(container)

    def environment(self) -> dict[str, str]:
        """The container's variables; what a Secret holds is FAKE_SECRET."""
        return {entry["name"]: entry.get("value", FAKE_SECRET) for entry in self.container.get("env", [])}

    def secrets(self) -> set[str]:
        """The Secrets that it reads."""
        variables = [
            entry.get("valueFrom", {}).get("secretKeyRef") for entry in self.container.get("env", [])
        ]
        volumes = [volume.get("secret") for volume in self.spec.get("volumes", [])]
        return {found["name"] for found in variables if found} | {
            found["secretName"] for found in volumes if found
        }


@dataclass(frozen=True)
class Rendering:
    """All objects of one kustomization."""

    name: str
    """What was rendered."""
    objects: Sequence[Object]
    """The objects, as parsed YAML."""

    @property
    def namespace(self) -> str:
        """The one namespace of its objects."""
        (name,) = {found["metadata"]["namespace"] for found in self.objects if found["kind"] != "Namespace"}
        return str(name)

    def of(self, kind: str) -> list[Object]:
        """The objects of a kind."""
        return [found for found in self.objects if found["kind"] == kind]

    def one(self, kind: str, name: str) -> Object:
        """The object of a kind and name."""
        (found,) = [found for found in self.of(kind) if found["metadata"]["name"] == name]
        return found

    def pods(self) -> list[Pod]:
        """The pods of deployments and jobs."""
        return [
            Pod(
                owner=f"{found['kind']}/{found['metadata']['name']}",
                labels=found["spec"]["template"]["metadata"]["labels"],
                spec=found["spec"]["template"]["spec"],
            )
            for kind in ("Deployment", "Job")
            for found in self.of(kind)
        ]

    def services(self) -> list[Pod]:
        """The pods that run one of our services, the gateway included."""
        return [pod for pod in self.pods() if pod.labels.get("app.kubernetes.io/part-of") == "dramaturg"]

    def configuration(self, pod: Pod) -> str:
        """The TOML file that is mounted into a pod."""
        (volume,) = [volume for volume in pod.spec["volumes"] if volume["name"] == "configuration"]
        data = self.one("ConfigMap", volume["configMap"]["name"])["data"]
        return str(data[Path(pod.environment()["DRAMATURG_CONFIG"]).name])


def kustomize(folder: Path) -> list[Object]:
    """Renders a folder. Skips the test where there is no kubectl."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not on PATH: the manifests cannot be rendered")
    done = subprocess.run([program, "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{folder}: {done.stderr}"
    # The parser in C, where the package has it, is ten times as fast.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [found for found in yaml.load_all(done.stdout, loader) if found is not None]


@functools.cache
def folder(path: str) -> Rendering:
    """A folder below ``k8s/``."""
    return Rendering(path, kustomize(K8S / path))


def ordered(*left_out: str) -> tuple[str, ...]:
    """All components but those left out, in an order in which they render."""
    names = [name for name in COMPONENTS if name not in left_out]
    return tuple(sorted(names, key=lambda name: name in PATCHING_SERVICES))


@functools.cache
def combined(components: tuple[str, ...]) -> Rendering:
    """The base with components, in their order."""
    with tempfile.TemporaryDirectory() as place:
        # kustomize takes no absolute paths.
        k8s = os.path.relpath(K8S, Path(place).resolve())
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "namespace": "dramaturg",
            "resources": [f"{k8s}/base"],
            "components": [f"{k8s}/components/{component}" for component in components],
        }
        (Path(place) / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
        return Rendering("+".join(("base", *components)), kustomize(Path(place)))


def _shown() -> Iterator[Any]:
    """What is deployed as it is, and each component alone, as parameters of a test."""
    for path in (
        "base",
        *(f"overlays/{name}" for name in OVERLAYS),
        *(f"examples/{name}" for name in EXAMPLES),
    ):
        yield pytest.param(lambda path=path: folder(path), id=path)
    for component in COMPONENTS:
        yield pytest.param(lambda component=component: combined((component,)), id=f"base+{component}")


every_rendering = pytest.mark.parametrize("render", list(_shown()))
"""Runs a test on every rendering; its argument ``render`` makes it."""
