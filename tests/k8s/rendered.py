"""Manifests as Helm and kustomize render them, and what of them the tests ask for."""

from __future__ import annotations

import dataclasses
import functools
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
K8S = ROOT / "k8s"
CHART = K8S / "chart"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C, where the package has it, is ten times as fast."""
OVERLAYS = ("local", "production")
EXAMPLES = tuple(sorted(path.stem for path in (K8S / "examples").glob("*.yaml")))
VALUES: Mapping[str, Mapping[str, Any]] = {
    "assigned-uids": {"assignedUids": True, "tls": {"fsGroup": 1000650000}},
    "backend-tls": {"ingress": {"enabled": True, "backendTls": True}, "tls": {"enabled": True}},
    "console": {"console": {"enabled": True}},
    "cpu-limits": {"defaults": {"resources": {"limits": {"cpu": "4"}}}},
    "egress-proxy": {
        "egressProxy": {"url": "http://proxy.example.com:3128", "cidr": "192.0.2.10/32", "port": 3128}
    },
    "gateway-api": {"ingress": {"enabled": True}},
    "keda": {"autoscaling": "keda"},
    "migration": {"migration": {"enabled": True}},
    "monitoring": {"monitoring": {"enabled": True}},
    "mtls": {"tls": {"enabled": True}},
    "offline": {"backend": "offline"},
    "postgres": {"store": {"cluster": {"enabled": True}}},
    "tracing": {"tracing": {"enabled": True}},
    **{name: yaml.safe_load((K8S / "examples" / f"{name}.yaml").read_text("utf-8"))
       for name in ("edges", "embeddings", "vllm")},
}  # fmt: skip
"""Values of the chart that turn a feature on, by its name."""
COMPONENTS = tuple(sorted(VALUES))

FAKE_SECRET = "postgresql://user:password@store-rw:5432/dramaturg"
"""Stands for the value of every Secret: manifests have none."""

COREDNS_SECONDS = 5
"""The time to live of what CoreDNS's plugin ``kubernetes`` answers, by default."""

EGRESSES = ("egress-proxy", "vllm")
"""Features that replace the egress of generation. The proxy comes first."""

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
    """All objects of one release or kustomization."""

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
        """The pods of deployments."""
        return [
            Pod(
                owner=f"{found['kind']}/{found['metadata']['name']}",
                labels=found["spec"]["template"]["metadata"]["labels"],
                spec=found["spec"]["template"]["spec"],
            )
            for found in self.of("Deployment")
        ]

    def migration(self, name: str = "gateway") -> Pod:
        """The pod of a service with its container ``migration`` as the only one."""
        pod = next(pod for pod in self.pods() if pod.name == name)
        (container,) = pod.spec["initContainers"]
        return dataclasses.replace(pod, spec={**pod.spec, "containers": [container]})

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
    return [found for found in yaml.load_all(done.stdout, LOADER) if found is not None]


def merged(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Values as Helm merges several files of them; lists of objects are joined."""
    found: dict[str, Any] = {}
    for given in values:
        for name, value in given.items():
            if isinstance(value, Mapping):
                found[name] = merged([found.get(name, {}), value])
            elif name == "extraObjects":
                found[name] = [*found.get(name, []), *value]
            else:
                found[name] = value
    return found


def render(values: Mapping[str, Any] | None = None, *, name: str = "chart", namespace: str = "dramaturg",
           upgrade: bool = False) -> Rendering:  # fmt: skip
    """All objects of a release of the chart. Skips the test without Helm's library."""
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed: run `make k8s-check`")
    given = dict(values or {})
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(given)
        texts = chart.render(
            given, name="dramaturg", namespace=namespace, is_install=not upgrade, is_upgrade=upgrade
        )
    found = [
        one
        for file, text in sorted(texts.items())
        if not file.endswith("NOTES.txt")
        for one in yaml.load_all(text, LOADER)
        if one is not None
    ]
    return Rendering(name, found)


@functools.cache
def folder(path: str) -> Rendering:
    """A size of the chart, an overlay, or an example with a Deployment for each service.

    "base" is the size ``separate``.
    """
    kind = path.partition("/")[0]
    if kind == "overlays":
        return Rendering(path, kustomize(K8S / path))
    if kind == "examples":
        values = yaml.safe_load((K8S / f"{path}.yaml").read_text(encoding="utf-8"))
        return applied(render(merged([{"size": "separate"}, values]), name=path))
    return applied(render({"size": path.replace("base", "separate")}, name=path))


@functools.cache
def combined(components: tuple[str, ...]) -> Rendering:
    """A Deployment for each service, with features."""
    values = merged([{"size": "separate"}, *(VALUES[name] for name in components)])
    return applied(render(values, name="+".join(("base", *components))))


def applied(rendering: Rendering) -> Rendering:
    """A rendering without what belongs to ``helm test``."""
    return Rendering(rendering.name, [one for one in rendering.objects if one["metadata"]["name"] != "test"])


def _shown() -> Iterator[Any]:
    """What is deployed as it is, and each component alone, as parameters of a test."""
    for path in (
        "base",
        "standard",
        "single",
        *(f"overlays/{name}" for name in OVERLAYS),
        *(f"examples/{name}" for name in EXAMPLES),
    ):
        yield pytest.param(lambda path=path: folder(path), id=path)
    for component in COMPONENTS:
        yield pytest.param(lambda component=component: combined((component,)), id=f"base+{component}")


every_rendering = pytest.mark.parametrize("render", list(_shown()))
"""Runs a test on every rendering; its argument ``render`` makes it."""
