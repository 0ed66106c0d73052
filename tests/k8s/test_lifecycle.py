"""Releases in a played API server, by Helm's own library and by kubectl."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.k8s.charts import values_of
from tests.k8s.rendered import CHART, K8S, OVERLAYS, ROOT, at, folder
from tests.support.kubernetes import Kubernetes, Object, kubernetes

README = (K8S / "README.md").read_text(encoding="utf-8")
RECORD = "helm.sh/release.v1"
"""The type of the Secrets in which Helm has its releases."""
NAMESPACE = '{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "NAME"}}'
WAIT = {"wait": "watcher", "timeout": 60}
HELM = f"""#!{sys.executable}
import argparse, os, helm_python
parser = argparse.ArgumentParser()
for name in ("verb", "release", "chart"):
    parser.add_argument(name)
parser.add_argument("--namespace")
parser.add_argument("--set", action="append")
parser.add_argument("--wait", action="store_true", required=True)
given = parser.parse_args()
assert given.verb == "install"
options = {{"namespace": given.namespace, "qps": 1000}}
with helm_python.Config(kubeconfig_path=os.environ["KUBECONFIG"], **options) as helm:
    values = helm_python.parse_set_string(",".join(given.set))
    helm.install(given.chart, given.release, values, namespace=given.namespace, wait="watcher", timeout=60)
"""
"""The command ``helm install``, by Helm's library."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Kubernetes]:
    """A cluster with the namespaces of a caller and of another release; `tmp_path/config` leads to it."""
    with kubernetes() as played:
        for name in ("team-a", "team-b"):
            played.answer("POST", "/api/v1/namespaces", "", NAMESPACE.replace("NAME", name).encode())
        (tmp_path / "config").write_text(played.kubeconfig(), encoding="utf-8")
        yield played
        assert played.refused == []


@pytest.fixture
def release(cluster: Kubernetes) -> Iterator[Any]:
    """Helm's library, in the namespace of the other release."""
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed: run `make k8s-check`")
    with helm.Config(kubeconfig_content=cluster.kubeconfig("team-b"), namespace="team-b", qps=1000) as client:
        yield client


@pytest.fixture
def shell(cluster: Kubernetes, tmp_path: Path) -> Callable[[str], None]:
    """Runs a command line with kubectl, and Helm's library as `helm`, in a folder that has `k8s`."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on PATH")
    (tmp_path / "k8s").symlink_to(K8S)
    (tmp_path / "helm").write_text(HELM, encoding="utf-8")
    (tmp_path / "helm").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT),
                   "KUBECONFIG": str(tmp_path / "config")}  # fmt: skip

    def run(command: str) -> None:
        words = ["bash", "-euc", command]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"

    return run


def stored(cluster: Kubernetes) -> dict[tuple[str, str, str], Object]:
    """All objects, without Helm's records and what the server adds to each write."""
    found = {}
    for one in cluster.objects:
        if one.get("type") != RECORD:
            metadata = one["metadata"]
            metadata.pop("resourceVersion", None)
            found[one["kind"], metadata.get("namespace", ""), metadata["name"]] = one
    return found


@pytest.mark.parametrize("name", ["single", "standard", "production"])
def test_a_release_is_upgraded_rolled_back_and_leaves_nothing(
    cluster: Kubernetes, release: Any, name: str
) -> None:
    """A rollback to the first revision makes its objects again; the Secrets that cert-manager keeps are left.

    An object whose immutable field a new image or another value changed would be refused.
    """
    values: Mapping[str, Any] = {"size": "single"} if name == "single" else values_of(name)
    changes: list[Mapping[str, Any]] = [
        {"image": {"digest": f"sha256:{'1' * 64}"}, "services": {"graph": {"configuration": "[graph]\n"}}},
        {"migration": {"enabled": True}, "console": {"enabled": True}, "commonLabels": {"team": "a"}},
    ]
    before = stored(cluster)
    release.install(str(CHART), "ours", values, namespace="team-b", **WAIT)
    installed = stored(cluster)
    for change in changes:
        release.upgrade(str(CHART), "ours", {**values, **change}, namespace="team-b", **WAIT)
    assert stored(cluster) != installed
    release.rollback("ours", version=1, **WAIT)
    assert stored(cluster) == installed
    release.test("ours")
    release.uninstall("ours", **WAIT)
    made = {key: one for key, one in installed.items() if key not in before}
    assert all(key[1] == "team-b" for key in made)
    other = re.search(r"ns/dramaturg/|\.dramaturg\.svc", str(made))
    assert not other, "it names another namespace than its own"
    kept = {key for key, one in made.items() if "labels" not in one["metadata"]}
    assert {key[0] for key in kept} <= {"Secret"}
    ours = {"app.kubernetes.io/instance": "ours", "app.kubernetes.io/managed-by": "Helm"}.items()
    assert all(ours <= made[key]["metadata"]["labels"].items() for key in made.keys() - kept)
    assert stored(cluster).keys() == before.keys() | kept
    assert not [one for one in cluster.objects if one.get("type") == RECORD]


def test_a_release_changes_its_size(cluster: Kubernetes, release: Any) -> None:
    """The volume of SQLite goes with the size ``single``, as the instructions say."""
    found: list[tuple[int, int]] = []
    for size in ("single", "standard", "separate", "standard", "single"):
        change = release.upgrade if found else release.install
        change(str(CHART), "ours", {"size": size}, namespace="team-b", wait="hookOnly")
        kinds = [one["kind"] for one in cluster.objects]
        found.append((kinds.count("Deployment"), kinds.count("PersistentVolumeClaim")))
    assert found == [(1, 1), (8, 0), (len(folder("base").pods()), 0), (8, 0), (1, 1)]


@pytest.mark.parametrize(("size", "most"), [("single", 6), ("standard", 9)])
def test_the_printed_commands_lead_to_a_caller_in_another_namespace(
    cluster: Kubernetes, shell: Callable[[str], None], size: str, most: int, tmp_path: Path
) -> None:
    """From an empty cluster. Every Secret that a pod reads is there, with its keys."""
    pytest.importorskip("helm_python", reason="helm-python-sdk is not installed: run `make k8s-check`")
    blocks = re.findall(r"```\n(kubectl apply -k k8s/overlays/namespace\n.*?)```", README, re.DOTALL)
    (block,) = [found for found in blocks if ("size=single" in found) == (size == "single")]
    commands = block.strip().splitlines()
    assert len(commands) <= most
    for file in ("token", "tokens.json", "KEYFILE", "FILE"):
        (tmp_path / file).write_text(f"the {file}", encoding="utf-8")
    for command in commands:
        shell(command)
    secrets = {
        (one["metadata"]["namespace"], one["metadata"]["name"]): one["data"]
        for one in cluster.objects
        if one["kind"] == "Secret"
    }
    pods = [one for one in cluster.objects if one["kind"] in {"Deployment", "Job"}]
    assert {one["metadata"]["namespace"] for one in pods} == {"dramaturg", "team-a"}
    for one in pods:
        for name, keys in read(one["spec"]["template"]["spec"]):
            assert keys <= secrets[one["metadata"]["namespace"], name].keys(), one["metadata"]["name"]
    known = base64.b64decode(secrets["team-a", "dramaturg"]["ca.crt"])
    assert known == base64.b64decode(secrets["dramaturg", "authority-public"]["ca.crt"])


def read(spec: Object) -> Iterator[tuple[str, set[str]]]:
    """The Secrets that a pod cannot start without, and the keys that it names."""
    for volume in spec["volumes"]:
        if (secret := volume.get("secret")) and not secret.get("optional"):
            yield secret["secretName"], {item["key"] for item in secret.get("items", [])}
    for entry in (entry for container in spec["containers"] for entry in container.get("env", [])):
        if reference := at(entry, "valueFrom secretKeyRef"):
            yield reference["name"], {reference["key"]}


def test_a_judge_that_another_team_added_outlives_an_upgrade(
    cluster: Kubernetes, release: Any, shell: Callable[[str], None]
) -> None:
    """By the command of the README: the key is theirs, the others are those of the release."""
    (command,) = re.findall(r"```\n(kubectl apply --server-side .*?)```", README, re.DOTALL)
    values: Mapping[str, Any] = {"size": "single"}
    release.install(str(CHART), "ours", values, namespace="team-b", wait="hookOnly")
    shell(re.sub(r"(namespace: |-n )dramaturg", r"\1team-b", command))
    judges = [{"role": "critic", "name": "next", "target": "next:50051"}]
    release.upgrade(str(CHART), "ours", {**values, "judges": judges}, namespace="team-b", wait="hookOnly")
    data = cluster.one("ConfigMap", "judges")["data"]
    assert data.keys() == {"00-built-in.toml", "50-values.toml", "other-critic.toml"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kustomize_applies_a_new_image(
    cluster: Kubernetes, shell: Callable[[str], None], overlay: str, tmp_path: Path
) -> None:
    """To every Deployment. When it is applied again, the server keeps every object as it is."""
    cluster.answer("POST", "/api/v1/namespaces", "", NAMESPACE.replace("NAME", "dramaturg").encode())
    kustomization: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(K8S / "overlays" / overlay, tmp_path.resolve())],
    }
    found = []
    for tag in ("1", "2", "2"):
        names = {one["image"].partition(":")[0] for one in containers(cluster)} or {"dramaturg"}
        kustomization["images"] = [{"name": name, "newTag": tag} for name in names]
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
        shell("kubectl apply -k .")
        found.append(cluster.objects)
    assert {one["image"].partition(":")[2] for one in containers(cluster)} == {"2"}
    assert found[0] != found[1] == found[2]


def containers(cluster: Kubernetes) -> list[Object]:
    """The containers of all Deployments."""
    specs = [one["spec"]["template"]["spec"] for one in cluster.objects if one["kind"] == "Deployment"]
    return [one for spec in specs for one in (*spec["containers"], *spec.get("initContainers", []))]
