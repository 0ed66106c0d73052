"""What every object and every pod holds to, in every rendering, by rules here and in expected.yaml."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from dramaturg.service.channel import LOOKUP_SECONDS
from tests.k8s.rendered import (
    COMPONENTS,
    COREDNS_SECONDS,
    EGRESSES,
    EXPECTED,
    K8S,
    OVERLAYS,
    Pod,
    Rendering,
    at,
    combined,
    every_rendering,
    faults,
    folder,
    kustomize,
)
from tests.support.kubernetes import Object

README = (K8S / "README.md").read_text(encoding="utf-8")
VOLUMES = {"configMap", "csi", "emptyDir", "persistentVolumeClaim", "secret", "projected", "downwardAPI"}
"""The kinds of volumes of the restricted profile."""
CONFINED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
SECRET_NAME = re.compile(r"(?:KEY|TOKEN|PASSWORD|SECRET|_URL)$")
SECRET_VALUE = re.compile(
    r"://[^/\s:@]+:[^/\s@]+@|\bsk-[A-Za-z0-9]{8}|BEGIN [A-Z ]*PRIVATE KEY|\beyJ[A-Za-z0-9_-]{10}"
)
MERGE_KEYS = {"containers": "name", "env": "name", "volumeMounts": "mountPath", "volumes": "name",
              "imagePullSecrets": "name"}  # fmt: skip
"""The keys by which the API server merges lists. An entry given twice is changed by every apply."""

Render = Callable[[], Rendering]


def pinned(image: str) -> bool:
    """Whether an image has a version, or a digest."""
    return image.rpartition("/")[2].partition("@" if "@" in image else ":")[2] not in {"", "latest"}


def confined(found: Rendering, pod: Pod) -> bool:
    """Whether a pod holds to the restricted profile, and its root cannot be written to."""
    context = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if "assigned-uids" not in found.name:
        context |= dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), 65532)
    return (
        pod.spec["securityContext"] == context
        and all(one["securityContext"] == CONFINED for one in pod.containers)
        and not {"hostNetwork", "hostPID", "hostIPC"} & pod.spec.keys()
        and all(volume.keys() - {"name"} <= VOLUMES for volume in pod.spec["volumes"])
        and all("sizeLimit" in volume.get("emptyDir", {"sizeLimit": ""}) for volume in pod.spec["volumes"])
    )


def bounded(found: Rendering, pod: Pod) -> bool:
    """Whether memory is limited. A limit of the processor, where none is asked for, stops event loops."""
    return {"cpu", "memory"} <= pod.container["resources"]["requests"].keys() and all(
        "memory" in one["resources"]["limits"]
        and ("cpu" in one["resources"]["limits"]) == ("cpu-limits" in found.name)
        for one in pod.containers
    )


def alone(found: Rendering, pod: Pod) -> bool:
    """Whether a pod has an account of its own, without a token."""
    account = pod.spec["serviceAccountName"]
    unmounted = (pod.spec, found.one("ServiceAccount", account))
    return (
        [one.spec["serviceAccountName"] for one in found.pods()].count(account) == 1
        and all(one["automountServiceAccountToken"] is False for one in unmounted)
        and pod.spec["enableServiceLinks"] is False
    )


def expanded(found: Rendering, pod: Pod) -> bool:
    """Whether variables are texts and stand before their use: the kubelet expands no others."""
    names = [entry["name"] for entry in pod.variables]
    values = [entry.get("value", "") for entry in pod.variables]
    return all(
        isinstance(value, str) and set(re.findall(r"\$\((\w+)\)", value)) <= set(names[:index])
        for index, value in enumerate(values)
    )


def of_namespace(found: Rendering, pod: Pod) -> bool:
    """Whether, with TLS, a service but the gateway serves the namespace of its pod alone."""
    known = pod.environment().get("DRAMATURG_AUTH_IDENTITIES")
    encrypted = "DRAMATURG_SERVER_TLS_CERTIFICATE_FILE" in pod.environment() and pod.name != "gateway"
    return "/ns/$(POD_NAMESPACE)/sa/*" in str(known) if encrypted else known is None


def references(found: Rendering, pod: Pod) -> bool:
    """Whether secrets are references to what the instructions create, and none is an argument."""
    secret = {entry["name"] for entry in pod.variables if "valueFrom" in entry}
    words = " ".join([*pod.container.get("command", []), *pod.container.get("args", [])])
    return (
        not any(f"$({name})" in words for name in secret)
        and all(f"create secret generic {name}" in README for name in pod.secrets())
        and all(
            "value" not in entry or entry["value"].startswith("sqlite:")
            for entry in pod.variables
            if SECRET_NAME.search(entry["name"])
        )
    )


def lasting(found: Rendering, pod: Pod) -> bool:
    """Whether clients know the new replica before the old one ends."""
    return bool(
        at(found.one("Deployment", pod.name), "spec minReadySeconds") >= LOOKUP_SECONDS + COREDNS_SECONDS
    )


def versioned(found: Rendering, pod: Pod) -> bool:
    """Whether all its images are."""
    return all(pinned(one["image"]) for one in pod.containers)


PODS = (versioned, confined, bounded, alone, references, expanded)
"""What holds for every pod."""
SERVICES = (lasting, of_namespace)
"""What holds for the pods of our services."""


def broken(found: Rendering) -> list[str]:
    """The rules that pods break."""
    pods = [(pod, rule) for pod in found.pods() for rule in PODS]
    pods += [(pod, rule) for pod in found.services() for rule in SERVICES]
    return [f"{pod.owner}: {rule.__name__}" for pod, rule in pods if not rule(found, pod)]


@every_rendering
def test_every_pod_holds_to_the_rules(render: Render) -> None:
    assert faults(render(), EXPECTED["rules"]) + broken(render()) == []


def fields(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All fields of an object, with their paths."""
    yield path, value
    entries = value.items() if isinstance(value, dict) else ()
    for name, one in [("*", one) for one in value] if isinstance(value, list) else entries:
        yield from fields(one, (*path, str(name)))


def changes(found: Object) -> Iterator[str]:
    """What the API server stores otherwise than it is given, so that every apply would change it."""
    for path, value in fields(found):
        last, before = path[-1] if path else "", path[-2] if len(path) > 1 else ""
        place = f"{found['kind']}/{found['metadata']['name']} {'.'.join(path)}: {value}"
        if value is None:
            yield f"{place} is dropped"
        if before in {"requests", "limits"}:
            quantity = re.fullmatch(r"(\d+)(m|Ki|Mi|Gi|)", value) if isinstance(value, str) else None
            if not quantity or int(quantity[1]) % {"m": 1000, "": 2**63}.get(quantity[2], 1024) == 0:
                yield f"{place} is stored in another form"
        if last in MERGE_KEYS and isinstance(value, list):
            keys = [entry[MERGE_KEYS[last]] for entry in value]
            if len(keys) > len(set(keys)):
                yield f"{place} names one twice"
        if before == "ports" and last == "*" and found["kind"] == "NetworkPolicy" and "protocol" not in value:
            yield f"{place} gets a protocol"
        if last == "strategy" and (value["type"] == "RollingUpdate") != ("rollingUpdate" in value):
            yield f"{place} gets a type"


def labelled(found: Object) -> bool:
    """Whether an object, and the pods that it makes, say what they belong to."""
    if found["kind"] in {"Namespace", "PersistentVolumeClaim"} or found["metadata"]["name"] == "vllm":
        return True
    wanted = {"part-of": "dramaturg", "instance": "dramaturg", "version": "0.1.0"}.items()
    given = [found["metadata"], at(found, "spec template metadata")]
    return all(
        at(one, f"labels app.kubernetes.io/{name}") == value for one in given if one for name, value in wanted
    )


@every_rendering
def test_every_object_holds_to_the_rules(render: Render) -> None:
    """All can be applied with the role ``admin`` of the namespace; a second apply changes nothing."""
    found = render()
    for one in found.objects:
        assert one["kind"] == "Namespace" or one["metadata"]["namespace"] == "dramaturg"
        assert labelled(one), one["metadata"]
        assert list(changes(one)) == []
        assert not SECRET_VALUE.search(str(one)), one["metadata"]
    assert all(pinned(cluster["spec"]["imageName"]) for cluster in found.of("Cluster"))
    assert len(found.of("ServiceAccount")) == len(found.pods())
    kinds = {one["kind"] for one in found.objects}
    assert not kinds & {"Secret", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
    assert ("Namespace" in kinds) == (found.name == "overlays/local")


@every_rendering
def test_replicas_are_the_autoscalers_affair_and_there_is_one_for_each(render: Render) -> None:
    rendering = render()
    scalers = [*rendering.of("HorizontalPodAutoscaler"), *rendering.of("ScaledObject")]
    scaled = [found["spec"]["scaleTargetRef"]["name"] for found in scalers]
    assert len(scaled) == len(set(scaled)), "two autoscalers would fight over a deployment"
    for name in scaled:
        spec = rendering.one("Deployment", name)["spec"]
        assert "replicas" not in spec
        assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    if rendering.name not in {"overlays/local", "single"}:
        assert set(scaled) == {pod.name for pod in rendering.services()}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_in_another_namespace_names_its_own_nowhere(overlay: str, tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: team-a\n"
        f"resources: [{os.path.relpath(K8S / 'overlays' / overlay, tmp_path.resolve())}]\n"
    )
    assert not re.search(
        r"ns/dramaturg/|\.dramaturg\.svc|namespace: dramaturg\n", yaml.safe_dump_all(kustomize(tmp_path))
    )


def test_the_namespace_enforces_the_profile_at_a_fixed_version() -> None:
    (namespace,) = kustomize(K8S / "overlays/namespace")
    labels = namespace["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert re.fullmatch(r"v1\.\d+", labels["pod-security.kubernetes.io/enforce-version"])


def test_every_container_fits_a_quota_on_limits_of_the_processor() -> None:
    rendering = combined(tuple(name for name in COMPONENTS if name not in EGRESSES))
    for pod in rendering.pods():
        resources = pod.container["resources"]
        requested = str(resources["requests"]["cpu"])
        cores = float(requested[:-1]) / 1000 if requested.endswith("m") else float(requested)
        assert cores <= float(resources["limits"]["cpu"]), pod.owner
    assert rendering.one("Cluster", "store")["spec"]["resources"]["limits"]["cpu"]


def test_a_model_server_writes_to_its_volumes_alone_and_runs_on_nodes_with_accelerators() -> None:
    """Its user has no entry in the passwd of the image, and the root cannot be written to."""
    pod = combined(("vllm",)).pod("vllm")
    assert pod.environment()["USER"]
    writable = [mount["mountPath"] for mount in pod.container["volumeMounts"] if not mount.get("readOnly")]
    for name in ("HOME", "XDG_CACHE_HOME", "HF_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR",
                 "TORCHINDUCTOR_CACHE_DIR"):  # fmt: skip
        assert any(Path(pod.environment()[name]).is_relative_to(place) for place in writable), name
    assert pod.spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    assert pod.container["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_the_production_overlay_names_the_secrets_that_a_site_creates() -> None:
    rendering = folder("overlays/production")
    text = (K8S / "overlays/production/kustomization.yaml").read_text(encoding="utf-8")
    header = text.split("apiVersion")[0].replace("\n# ", " ")
    made = {found["spec"]["secretName"] for found in rendering.of("Certificate")} | {"store-app", "store-ca"}
    read = {secret for pod in rendering.pods() for secret in pod.secrets()}
    read.add(at(rendering.one("Gateway", "dramaturg"), "spec listeners 0 tls certificateRefs 0 name"))
    assert read - made == set(re.findall(r"`([a-z-]+)` \(", header))


def test_everybody_may_call_the_gateway_on_one_machine_alone() -> None:
    for path in (
        "base",
        "single",
        "standard",
        "overlays/production",
        "overlays/local",
        "examples/two-critics",
    ):
        names = {name for name in folder(path).pod("gateway").environment() if "_AUTH_" in name}
        allowed = {"DRAMATURG_AUTH_ALLOW_ANONYMOUS"}
        assert names == (allowed if path == "overlays/local" else {"DRAMATURG_AUTH_TOKENS_FILE"}), path


@pytest.mark.parametrize("name", ["caller", "evaluation"])
def test_the_caller_of_the_example_may_call_and_holds_to_the_profile(name: str) -> None:
    objects = yaml.safe_load_all((K8S / f"examples/jobs/{name}.yaml").read_text(encoding="utf-8"))
    (job,) = [one for one in objects if one["kind"] == "Job"]
    kubernetes_validate.validate(job, "1.31", strict=True)
    template = job["spec"]["template"]
    (rule,) = folder("single").one("NetworkPolicy", "gateway")["spec"]["ingress"]
    assert template["metadata"]["labels"] == rule["from"][0]["podSelector"]["matchLabels"]
    pod = Pod(f"Job/{name}", {}, template["spec"])
    assert pod.spec["securityContext"]["runAsNonRoot"]
    assert pod.container["securityContext"] == CONFINED
    (secret,) = pod.secrets()
    assert f"-n team-a create secret generic {secret} --from-file=token --from-literal=ca.crt=" in README
