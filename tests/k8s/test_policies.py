"""What every object and every pod holds to, in every rendering; the rules are data."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from dramaturg.service.channel import LOOKUP_SECONDS
from tests.k8s.rendered import (
    COMPONENTS,
    COREDNS_SECONDS,
    K8S,
    OVERLAYS,
    Object,
    Pod,
    Rendering,
    combined,
    every_rendering,
    folder,
    kustomize,
)

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
SPREAD = ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumes": "name",
    "imagePullSecrets": "name",
}
"""The keys by which the API server merges lists. An entry given twice is changed by every apply."""

Render = Callable[[], Rendering]


def containers(pod: Pod) -> list[Object]:
    """The container of a pod, and those that run before it."""
    return [pod.container, *pod.spec.get("initContainers", [])]


def entries(pod: Pod) -> list[Object]:
    """The variables of its container."""
    return list(pod.container.get("env", []))


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
        and all(one["securityContext"] == CONFINED for one in containers(pod))
        and not {"hostNetwork", "hostPID", "hostIPC"} & pod.spec.keys()
        and all(volume.keys() - {"name"} <= VOLUMES for volume in pod.spec["volumes"])
        and all("sizeLimit" in volume.get("emptyDir", {"sizeLimit": ""}) for volume in pod.spec["volumes"])
    )


def bounded(found: Rendering, pod: Pod) -> bool:
    """Whether memory is limited. A limit of the processor, where none is asked for, stops event loops."""
    return {"cpu", "memory"} <= pod.container["resources"]["requests"].keys() and all(
        "memory" in one["resources"]["limits"]
        and ("cpu" in one["resources"]["limits"]) == ("cpu-limits" in found.name)
        for one in containers(pod)
    )


def expanded(found: Rendering, pod: Pod) -> bool:
    """Whether variables stand before their use: the kubelet expands no others."""
    names = [entry["name"] for entry in entries(pod)]
    return all(
        used in names[:index]
        for index, entry in enumerate(entries(pod))
        for used in re.findall(r"\$\((\w+)\)", str(entry.get("value", "")))
    )


def of_namespace(found: Rendering, pod: Pod) -> bool:
    """Whether, with TLS, a service but the gateway serves the namespace of its pod alone."""
    known = pod.environment().get("DRAMATURG_AUTH_IDENTITIES", "/ns/$(POD_NAMESPACE)/sa/*")
    encrypted = "DRAMATURG_SERVER_TLS_CERTIFICATE_FILE" in pod.environment() and pod.name != "gateway"
    return "/ns/$(POD_NAMESPACE)/sa/*" in known and (
        encrypted == ("DRAMATURG_AUTH_IDENTITIES" in pod.environment())
    )


def references(found: Rendering, pod: Pod) -> bool:
    """Whether secrets are references, and none is an argument."""
    secret = {entry["name"] for entry in entries(pod) if "valueFrom" in entry}
    words = " ".join([*pod.container.get("command", []), *pod.container.get("args", [])])
    return not any(f"$({name})" in words for name in secret) and all(
        "value" not in entry or entry["value"].startswith("sqlite:")
        for entry in entries(pod)
        if SECRET_NAME.search(entry["name"])
    )


PODS: Mapping[str, Callable[[Rendering, Pod], bool]] = {
    "its image is pinned": lambda found, pod: pinned(pod.container["image"]),
    "it holds to the restricted profile": confined,
    "its resources are bounded": bounded,
    "it has an account of its own, without a token": lambda found, pod: (
        [one.spec["serviceAccountName"] for one in found.pods()].count(pod.spec["serviceAccountName"]) == 1
        and found.one("ServiceAccount", pod.spec["serviceAccountName"])["automountServiceAccountToken"]
        is False
        and pod.spec["automountServiceAccountToken"] is False
        and pod.spec["enableServiceLinks"] is False
    ),
    "its secrets are references": references,
    "every Secret that it reads is in the instructions": lambda found, pod: all(
        f"create secret generic {name}" in README for name in pod.secrets()
    ),
    "its variables are expanded": expanded,
    "its variables are texts": lambda found, pod: all(
        isinstance(entry.get("value", ""), str) for entry in entries(pod)
    ),
}
"""What holds for every pod."""

SERVICES: Mapping[str, Callable[[Rendering, Pod], bool]] = {
    "one replica is disrupted at a time": lambda found, pod: (
        found.one("PodDisruptionBudget", pod.name)["spec"]
        == {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": {"app.kubernetes.io/name": pod.name}},
        }
    ),
    "clients know the new replica before the old one ends": lambda found, pod: (
        found.one("Deployment", pod.name)["spec"]["minReadySeconds"] >= LOOKUP_SECONDS + COREDNS_SECONDS
    ),
    "its Service is headless": lambda found, pod: (
        found.one("Service", pod.name)["spec"].items()
        >= {"clusterIP": "None", "selector": {"app.kubernetes.io/name": pod.name}}.items()
    ),
    "its replicas are spread by release": lambda found, pod: (
        [rule["topologyKey"] for rule in pod.spec["topologySpreadConstraints"]] == SPREAD
        and all(
            rule["labelSelector"]["matchLabels"] == {"app.kubernetes.io/name": pod.name}
            and rule["matchLabelKeys"] == ["pod-template-hash"]
            for rule in pod.spec["topologySpreadConstraints"]
        )
    ),
    "its callers are of its namespace": of_namespace,
}
"""What holds for the pods of our services."""


@every_rendering
def test_every_pod_holds_to_the_rules(render: Render) -> None:
    found = render()
    pods = [(rule, pod) for pod in found.pods() for rule, holds in PODS.items() if not holds(found, pod)]
    pods += [
        (rule, pod) for pod in found.services() for rule, holds in SERVICES.items() if not holds(found, pod)
    ]
    assert [(pod.owner, rule) for rule, pod in pods] == []


def fields(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All fields of an object, with their paths."""
    yield path, value
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from fields(inner, (*path, str(name)))
    if isinstance(value, list):
        for inner in value:
            yield from fields(inner, (*path, "*"))


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
    given = [found["metadata"], found.get("spec", {}).get("template", {}).get("metadata")]
    return all(
        one["labels"].get(f"app.kubernetes.io/{name}") == value
        for one in given
        if one
        for name, value in wanted
    )


@every_rendering
def test_every_object_holds_to_the_rules(render: Render) -> None:
    """All can be applied with the role ``admin`` of the namespace; a second apply changes nothing."""
    found = render()
    for one in found.objects:
        if one["kind"] != "Namespace":
            assert one["metadata"]["namespace"] == "dramaturg"
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
    scaled = [
        found["spec"]["scaleTargetRef"]["name"]
        for kind in ("HorizontalPodAutoscaler", "ScaledObject")
        for found in rendering.of(kind)
    ]
    assert len(scaled) == len(set(scaled)), "two autoscalers would fight over a deployment"
    for name in scaled:
        spec = rendering.one("Deployment", name)["spec"]
        assert "replicas" not in spec
        assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    if rendering.name not in {"overlays/local", "single"}:
        assert set(scaled) == {pod.name for pod in rendering.services()}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_in_another_namespace_names_its_own_nowhere(overlay: str, tmp_path: Path) -> None:
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "team-a",
        "resources": [os.path.relpath(K8S / "overlays" / overlay, tmp_path.resolve())],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
    assert not re.search(
        r"ns/dramaturg/|\.dramaturg\.svc|namespace: dramaturg\n", yaml.safe_dump_all(kustomize(tmp_path))
    )


def test_pods_of_every_feature_name_no_ids_where_the_platform_assigns_them() -> None:
    rendering = combined(("assigned-uids", "mtls", "postgres", "migration", "edges"))
    assert all(confined(rendering, pod) for pod in rendering.pods())


def test_the_namespace_enforces_the_profile_at_a_fixed_version() -> None:
    (namespace,) = kustomize(K8S / "overlays/namespace")
    labels = namespace["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert re.fullmatch(r"v1\.\d+", labels["pod-security.kubernetes.io/enforce-version"])


def test_every_container_fits_a_quota_on_limits_of_the_processor() -> None:
    rendering = combined(tuple(name for name in COMPONENTS if name not in {"egress-proxy", "vllm"}))
    for pod in rendering.pods():
        resources = pod.container["resources"]
        requested = str(resources["requests"]["cpu"])
        cores = float(requested[:-1]) / 1000 if requested.endswith("m") else float(requested)
        assert cores <= float(resources["limits"]["cpu"]), pod.owner
    assert rendering.one("Cluster", "store")["spec"]["resources"]["limits"]["cpu"]


def test_a_model_server_writes_to_its_volumes_alone_and_runs_on_nodes_with_accelerators() -> None:
    """Its user has no entry in the passwd of the image, and the root cannot be written to."""
    pod = next(pod for pod in combined(("vllm",)).pods() if pod.name == "vllm")
    variables = pod.environment()
    assert variables["USER"]
    folders = {"HOME", "XDG_CACHE_HOME", "HF_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"}
    folders |= {"TORCHINDUCTOR_CACHE_DIR"}
    writable = [mount["mountPath"] for mount in pod.container["volumeMounts"] if not mount.get("readOnly")]
    for name in folders:
        assert any(Path(variables[name]).is_relative_to(place) for place in writable), name
    assert pod.spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    assert pod.container["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_the_production_overlay_names_the_secrets_that_a_site_creates() -> None:
    rendering = folder("overlays/production")
    header = (
        (K8S / "overlays/production/kustomization.yaml").read_text(encoding="utf-8").split("apiVersion")[0]
    ).replace("\n# ", " ")
    made = {found["spec"]["secretName"] for found in rendering.of("Certificate")} | {"store-app", "store-ca"}
    read = {secret for pod in rendering.pods() for secret in pod.secrets()}
    for gateway in rendering.of("Gateway"):
        for listener in gateway["spec"]["listeners"]:
            read |= {reference["name"] for reference in listener["tls"]["certificateRefs"]}
    assert read - made == set(re.findall(r"`([a-z-]+)` \(", header))


def test_the_database_must_prove_its_name() -> None:
    rendering = combined(("postgres", "migration"))
    for pod in (*rendering.pods(), rendering.migration()):
        if "store-app" in pod.secrets():
            assert pod.environment()["PGSSLMODE"] == "verify-full", pod.owner
            (mount,) = [
                one for one in pod.container["volumeMounts"] if one["mountPath"] == "/etc/dramaturg/store"
            ]
            assert pod.environment()["PGSSLROOTCERT"] == f"{mount['mountPath']}/ca.crt"
            (volume,) = [one for one in pod.spec["volumes"] if one["name"] == mount["name"]]
            # The operator's Secret holds the authority's private key beside it.
            assert volume["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}], pod.owner


def test_proxies_read_an_authority_without_its_private_key() -> None:
    rendering = folder("overlays/production")
    (policy,) = rendering.of("BackendTLSPolicy")
    (reference,) = policy["spec"]["validation"]["caCertificateRefs"]
    issued = {found["spec"]["secretName"]: found["spec"] for found in rendering.of("Certificate")}
    assert not issued[reference["name"]].get("isCA")
    assert issued[reference["name"]]["issuerRef"]["name"] == "dramaturg"
    assert policy["spec"]["validation"]["hostname"] == policy["spec"]["targetRefs"][0]["name"] == "gateway"


def test_the_gateway_authenticates_callers_everywhere_but_on_one_machine() -> None:
    for path in ("base", "single", "standard", "overlays/production", "examples/two-critics"):
        pod = next(pod for pod in folder(path).pods() if pod.name == "gateway")
        assert "DRAMATURG_AUTH_TOKENS_FILE" in pod.environment(), path
        assert "DRAMATURG_AUTH_ALLOW_ANONYMOUS" not in pod.environment(), path
    pod = next(pod for pod in folder("overlays/local").pods() if pod.name == "gateway")
    assert pod.environment()["DRAMATURG_AUTH_ALLOW_ANONYMOUS"] == "true"


def test_monitors_have_the_label_by_which_prometheus_selects_them() -> None:
    rendering = combined(("monitoring",))
    for kind in ("ServiceMonitor", "PrometheusRule"):
        assert rendering.one(kind, "dramaturg")["metadata"]["labels"]["release"] == "kube-prometheus-stack"


@pytest.mark.parametrize("name", ["caller", "evaluation"])
def test_the_caller_of_the_example_may_call_and_holds_to_the_profile(name: str) -> None:
    objects = yaml.safe_load_all((K8S / f"examples/jobs/{name}.yaml").read_text(encoding="utf-8"))
    (job,) = [one for one in objects if one["kind"] == "Job"]
    kubernetes_validate.validate(job, "1.31", strict=True)
    template = job["spec"]["template"]
    (container,) = template["spec"]["containers"]
    (rule,) = folder("single").one("NetworkPolicy", "gateway")["spec"]["ingress"]
    assert template["metadata"]["labels"] == rule["from"][0]["podSelector"]["matchLabels"]
    assert template["spec"]["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    (secret,) = [one["secret"]["secretName"] for one in template["spec"]["volumes"] if "secret" in one]
    assert f"-n team-a create secret generic {secret} --from-file=token --from-literal=ca.crt=" in README


def test_the_autoscaler_of_the_base_is_the_one_that_keda_takes_over() -> None:
    base = folder("base").one("HorizontalPodAutoscaler", "gateway")
    scaled = combined(("keda",)).one("ScaledObject", "gateway")
    taken = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["name"]
    assert taken == base["metadata"]["name"]
    assert scaled["metadata"]["annotations"]["scaledobject.keda.sh/transfer-hpa-ownership"] == "true"
