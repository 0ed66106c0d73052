"""Manifests as Helm and kustomize render them, and what of them the tests ask for."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kubernetes import LOADER, Object

ROOT = Path(__file__).resolve().parents[2]
K8S = ROOT / "k8s"
CHART = K8S / "chart"
EXPECTED: Mapping[str, Any] = yaml.safe_load(Path(__file__).with_name("expected.yaml").read_text("utf-8"))
"""What values render; see ``faults``."""
OVERLAYS = ("local", "production")
EXAMPLES = tuple(sorted(path.stem for path in (K8S / "examples").glob("*.yaml")))
COMPONENTS = tuple(sorted(EXPECTED["features"]))
"""The features of the chart, each of which some values turn on."""
EGRESSES = ("egress-proxy", "vllm")
"""Features that replace the egress of generation. The proxy comes first."""
FAKE_SECRET = "postgresql://user:password@store-rw:5432/dramaturg"
"""Stands for the value of every Secret: manifests have none."""
COREDNS_SECONDS = 5
"""The time to live of what CoreDNS's plugin ``kubernetes`` answers, by default."""


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

    @property
    def containers(self) -> list[Object]:
        """Its container, and those that run before it."""
        return [self.container, *self.spec.get("initContainers", [])]

    @property
    def variables(self) -> list[Object]:
        """The entries of the container's variables."""
        return list(self.container.get("env", []))

    def environment(self) -> dict[str, str]:
        """The container's variables; what a Secret holds is FAKE_SECRET."""
        return {entry["name"]: entry.get("value", FAKE_SECRET) for entry in self.variables}

    def secrets(self) -> set[str]:
        """The Secrets that it reads."""
        references = (at(entry, "valueFrom secretKeyRef name") for entry in self.variables)
        volumes = (at(volume, "secret secretName") for volume in self.spec.get("volumes", []))
        return {name for name in (*references, *volumes) if name}


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
        templates = [
            (found["metadata"]["name"], found["spec"]["template"]) for found in self.of("Deployment")
        ]
        return [Pod(f"Deployment/{name}", one["metadata"]["labels"], one["spec"]) for name, one in templates]

    def pod(self, name: str) -> Pod:
        """The pod of a service."""
        return next(pod for pod in self.pods() if pod.name == name)

    def migration(self, name: str = "gateway") -> Pod:
        """The pod of a service with its container ``migration`` as the only one."""
        pod = self.pod(name)
        (container,) = pod.spec["initContainers"]
        return dataclasses.replace(pod, spec={**pod.spec, "containers": [container]})

    def services(self) -> list[Pod]:
        """The pods that run one of our services, the gateway included."""
        return [pod for pod in self.pods() if pod.labels.get("app.kubernetes.io/part-of") == "dramaturg"]

    def configuration(self, pod: Pod) -> str:
        """The TOML file that is mounted into a pod."""
        name = at(pod.spec, "volumes configuration configMap name")
        return str(self.one("ConfigMap", name)["data"][Path(pod.environment()["DRAMATURG_CONFIG"]).name])

    def differences(self, base: Rendering) -> list[str]:
        """The objects that the base lacks, or has otherwise, as ``Kind/name``."""
        changed = [one for one in self.objects if one not in base.objects]
        return sorted(f"{one['kind']}/{one['metadata']['name']}" for one in changed)


def at(value: Any, path: str) -> Any:
    """What is at a path of keys, of indexes, and of the names of a list's entries; None where nothing is."""
    for key in path.split():
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list) and key.lstrip("-").isdecimal():
            value = value[int(key)] if -len(value) <= int(key) < len(value) else None
        else:
            value = next((entry for entry in value or [] if entry.get("name") == key), None)
    return value


def faults(rendering: Rendering, expected: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """Where a rendering is not as expected.

    Args:
        rendering: What is compared.
        expected: Values by object and by path (see ``at``). An object is ``Kind/name``, ``pod/name`` for the
            specification of a pod, or ``env/name`` for its variables. The name ``*`` stands for every
            service, and is ``$NAME`` in the values. None in place of the paths: there is no such object.
    """
    found: dict[str, Any] = {f"{one['kind']}/{one['metadata']['name']}": one for one in rendering.objects}
    found |= {f"pod/{pod.name}": pod.spec for pod in rendering.pods()}
    found |= {f"env/{pod.name}": pod.environment() for pod in rendering.pods()}
    names = [pod.name for pod in rendering.services()]
    differences = []
    for target, fields in expected.items():
        for name in names if target.endswith("/*") else [""]:
            place = target.replace("*", name) if name else target
            for path, value in ({"": None} if fields is None else fields).items():
                wanted = json.loads(json.dumps(value).replace("$NAME", name))
                if (there := at(found.get(place), path)) != wanted:
                    differences.append(f"{place} {path}: {there}, not {wanted}")
    return differences


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


def render(values: Mapping[str, Any] | None = None, *, name: str = "chart") -> Rendering:
    """All objects of a release of the chart. Skips the test without Helm's library."""
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed: run `make k8s-check`")
    given = dict(values or {})
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(given)
        texts = chart.render(given, name="dramaturg", namespace="dramaturg")
    return Rendering(name, parsed(texts))


def parsed(texts: Mapping[str, str]) -> list[Object]:
    """The objects of a chart's files."""
    files = [text for file, text in sorted(texts.items()) if not file.endswith("NOTES.txt")]
    return [one for text in files for one in yaml.load_all(text, LOADER) if one is not None]


def example(name: str) -> dict[str, Any]:
    """The values of an example."""
    return dict(yaml.safe_load((K8S / f"examples/{name}.yaml").read_text(encoding="utf-8")))


@functools.cache
def folder(path: str) -> Rendering:
    """A size of the chart, an overlay, or an example with a Deployment for each service.

    "base" is the size ``separate``.
    """
    kind, _, name = path.partition("/")
    if kind == "overlays":
        return Rendering(path, kustomize(K8S / path))
    if kind == "examples":
        return applied(render({"size": "separate", **example(name)}, name=path))
    return applied(render({"size": path.replace("base", "separate")}, name=path))


@functools.cache
def combined(components: tuple[str, ...]) -> Rendering:
    """A Deployment for each service, with features."""
    values = [EXPECTED["features"][name]["values"] or example(name) for name in components]
    return applied(render(merged([{"size": "separate"}, *values]), name="+".join(("base", *components))))


def applied(rendering: Rendering) -> Rendering:
    """A rendering without what belongs to ``helm test``."""
    return Rendering(rendering.name, [one for one in rendering.objects if one["metadata"]["name"] != "test"])


def _shown() -> Iterator[Any]:
    """What is deployed as it is, and each component alone, as parameters of a test."""
    overlays = [f"overlays/{name}" for name in OVERLAYS]
    for path in ("base", "standard", "single", *overlays, *(f"examples/{name}" for name in EXAMPLES)):
        yield pytest.param(lambda path=path: folder(path), id=path)
    for component in COMPONENTS:
        yield pytest.param(lambda component=component: combined((component,)), id=f"base+{component}")


every_rendering = pytest.mark.parametrize("render", list(_shown()))
"""Runs a test on every rendering; its argument ``render`` makes it."""
