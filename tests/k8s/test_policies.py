"""What every pod must hold to: the restricted profile, limits, an identity of its own, no secret in sight."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from dramaturg.service.channel import LOOKUP_SECONDS
from tests.k8s.rendered import (
    COMPONENTS,
    COREDNS_SECONDS,
    K8S,
    Rendering,
    combined,
    every_rendering,
    folder,
    kustomize,
)

_ALLOWED_VOLUMES = {
    "configMap",
    "csi",
    "emptyDir",
    "persistentVolumeClaim",
    "secret",
    "projected",
    "downwardAPI",
}
_SECRET_NAME = re.compile(r"KEY$|TOKEN|PASSWORD|SECRET|_URL$|DATABASE_URL")
_SECRET_VALUE = re.compile(
    r"://[^/\s:@]+:[^/\s@]+@|\bsk-[A-Za-z0-9]{8}|BEGIN [A-Z ]*PRIVATE KEY|\beyJ[A-Za-z0-9_-]{10}"
)
_MADE_BY_OPERATORS = {"authority"}

Render = Callable[[], Rendering]


@every_rendering
def test_images_are_pinned(render: Render) -> None:
    rendering = render()
    images = [pod.container["image"] for pod in rendering.pods()]
    images += [cluster["spec"]["imageName"] for cluster in rendering.of("Cluster")]
    for image in images:
        _, _, version = image.rpartition("/")[2].partition("@" if "@" in image else ":")
        assert version not in {"", "latest"}, image


@every_rendering
def test_pods_hold_to_the_restricted_profile(render: Render) -> None:
    """The restricted profile of the Pod Security Standards, and a root that cannot be written to."""
    rendering = render()
    for pod in rendering.pods():
        spec, container = pod.spec, pod.container
        assert spec["securityContext"]["runAsNonRoot"] is True, pod.owner
        assigned = "assigned-uids" in rendering.name
        assert spec["securityContext"].get("runAsUser") == (None if assigned else 65532), pod.owner
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, pod.owner
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, pod.owner
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys(), pod.owner
        for first in spec.get("initContainers", []):
            assert first["securityContext"] == container["securityContext"], pod.owner
            assert "memory" in first["resources"]["limits"], pod.owner
        for volume in spec["volumes"]:
            (kind,) = volume.keys() - {"name"}
            assert kind in _ALLOWED_VOLUMES, f"{pod.owner}: {volume}"
            assert kind != "emptyDir" or "sizeLimit" in volume["emptyDir"], f"{pod.owner}: {volume}"


def test_the_namespace_enforces_the_profile_at_a_fixed_version() -> None:
    (namespace,) = kustomize(K8S / "overlays/namespace")
    labels = namespace["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert re.fullmatch(r"v1\.\d+", labels["pod-security.kubernetes.io/enforce-version"])


@every_rendering
def test_the_namespace_is_the_only_object_of_the_cluster(render: Render) -> None:
    """The rest can be applied with the role ``admin`` of the namespace."""
    rendering = render()
    of_the_cluster = [found["kind"] for found in rendering.objects if "namespace" not in found["metadata"]]
    assert of_the_cluster == (["Namespace"] if rendering.name == "overlays/local" else [])


@every_rendering
def test_resources_are_requested_and_memory_is_limited(render: Render) -> None:
    """No limit of the processor unless it is asked for: throttling stops an event loop, and its probes."""
    rendering = render()
    for pod in rendering.pods():
        resources = pod.container["resources"]
        assert {"cpu", "memory"} <= resources["requests"].keys(), pod.owner
        assert "memory" in resources["limits"], pod.owner
        assert ("cpu" in resources["limits"]) == ("cpu-limits" in rendering.name), pod.owner
        for first in pod.spec.get("initContainers", []):
            assert ("cpu" in first["resources"]["limits"]) == ("cpu-limits" in rendering.name), pod.owner


def test_every_container_fits_a_quota_on_limits_of_the_processor() -> None:
    rendering = combined(tuple(name for name in COMPONENTS if name not in {"egress-proxy", "vllm"}))
    for pod in rendering.pods():
        resources = pod.container["resources"]
        requested = str(resources["requests"]["cpu"])
        cores = float(requested[:-1]) / 1000 if requested.endswith("m") else float(requested)
        assert cores <= float(resources["limits"]["cpu"]), pod.owner
    assert rendering.one("Cluster", "store")["spec"]["resources"]["limits"]["cpu"]


@every_rendering
def test_each_has_an_account_of_its_own_without_a_token(render: Render) -> None:
    rendering = render()
    accounts = {account["metadata"]["name"]: account for account in rendering.of("ServiceAccount")}
    used = [pod.spec["serviceAccountName"] for pod in rendering.pods()]
    assert len(used) == len(set(used))
    assert set(used) == set(accounts)
    assert "default" not in used
    for pod in rendering.pods():
        assert pod.spec["automountServiceAccountToken"] is False, pod.owner
        assert pod.spec["enableServiceLinks"] is False, pod.owner
    for account in accounts.values():
        assert account["automountServiceAccountToken"] is False
    assert not {found["kind"] for found in rendering.objects} & {
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    }


@every_rendering
def test_secrets_are_references(render: Render) -> None:
    rendering = render()
    assert not rendering.of("Secret")
    for pod in rendering.pods():
        for entry in pod.container.get("env", []):
            harmless = entry.get("value", "").startswith("sqlite:")
            if _SECRET_NAME.search(entry["name"]) and not entry["name"].endswith("_FILE") and not harmless:
                assert "value" not in entry, f"{pod.owner}: {entry['name']}"
    for found in rendering.objects:
        assert not _SECRET_VALUE.search(str(found)), f"{found['kind']}/{found['metadata']['name']}"


@every_rendering
def test_every_secret_that_is_read_is_made_by_an_operator_or_named_in_the_instructions(
    render: Render,
) -> None:
    instructions = (K8S / "README.md").read_text(encoding="utf-8")
    for pod in render().pods():
        for secret in pod.secrets() - _MADE_BY_OPERATORS:
            assert f"create secret generic {secret}" in instructions, f"{pod.owner} reads {secret}"


@every_rendering
def test_services_are_disrupted_one_replica_at_a_time(render: Render) -> None:
    rendering = render()
    budgets = {
        tuple(found["spec"]["selector"]["matchLabels"].items()): found
        for found in rendering.of("PodDisruptionBudget")
    }
    for pod in rendering.services():
        budget = budgets[("app.kubernetes.io/name", pod.name),]
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


@every_rendering
def test_old_replicas_stay_until_clients_can_know_the_new_ones(render: Render) -> None:
    """See "Roll" in docs/operate/operations.md, and tests/cluster, which tries it."""
    rendering = render()
    ours = {pod.owner for pod in rendering.services()}
    for deployment in rendering.of("Deployment"):
        if f"Deployment/{deployment['metadata']['name']}" in ours:
            seconds = deployment["spec"]["minReadySeconds"]
            assert seconds >= LOOKUP_SECONDS + COREDNS_SECONDS, deployment["metadata"]["name"]


@every_rendering
def test_replicas_are_the_autoscalers_affair_and_there_is_one_for_each(render: Render) -> None:
    rendering = render()
    scaled = [found["spec"]["scaleTargetRef"]["name"] for found in rendering.of("HorizontalPodAutoscaler")]
    scaled += [found["spec"]["scaleTargetRef"]["name"] for found in rendering.of("ScaledObject")]
    assert len(scaled) == len(set(scaled)), "two autoscalers would fight over a deployment"
    for deployment in rendering.of("Deployment"):
        name = deployment["metadata"]["name"]
        if name in scaled:
            assert "replicas" not in deployment["spec"]
            assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    if rendering.name not in {"overlays/local", "single"}:
        assert set(scaled) == {pod.name for pod in rendering.services()}


@every_rendering
def test_services_are_headless_and_select_their_pods(render: Render) -> None:
    rendering = render()
    for pod in rendering.services():
        service = rendering.one("Service", pod.name)
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["selector"] == {"app.kubernetes.io/name": pod.name}


@every_rendering
def test_replicas_are_spread_by_release(render: Render) -> None:
    for pod in render().services():
        spread = pod.spec["topologySpreadConstraints"]
        assert {rule["topologyKey"] for rule in spread} == {
            "topology.kubernetes.io/zone",
            "kubernetes.io/hostname",
        }
        for rule in spread:
            assert rule["labelSelector"]["matchLabels"] == {"app.kubernetes.io/name": pod.name}
            assert rule["matchLabelKeys"] == ["pod-template-hash"]


def test_pods_name_no_ids_where_the_platform_assigns_them() -> None:
    for pod in combined(("assigned-uids", "mtls", "postgres", "migration", "edges")).pods():
        assert pod.spec["securityContext"] == {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }, pod.owner


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


@every_rendering
def test_no_secret_is_an_argument(render: Render) -> None:
    for pod in render().pods():
        secrets = {entry["name"] for entry in pod.container.get("env", []) if "valueFrom" in entry}
        words = " ".join([*pod.container.get("command", []), *pod.container.get("args", [])])
        assert not {name for name in secrets if f"$({name})" in words}, pod.owner


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
    instructions = (K8S / "README.md").read_text(encoding="utf-8")
    assert (
        f"-n team-a create secret generic {secret} --from-file=token --from-literal=ca.crt=" in instructions
    )
