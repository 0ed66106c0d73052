"""The chart installs what kustomize applies, and its values change what they name."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from gateway.quotas.settings import Quota
from gateway.settings import GatewaySettings, JudgeEntry, PanelTable, RetryTable, RoleEntry, ShadowTable
from services.generation.settings import GenerationSettings
from tests.k8s.charts import CHART, HOOK, comparable, is_test, production, render
from tests.k8s.configured import load_judges, load_settings
from tests.k8s.rendered import Rendering, combined, folder
from tests.k8s.test_schemas import NEWEST, OLDEST, assert_valid

CLUSTER = {"cluster": {"enabled": True}}
PROXY = {"url": "http://proxy.example.com:3128", "cidr": "192.0.2.10/32", "port": 3128}
PROXIED = {"enabled": True, "backendTls": True}
ENCODER = {"images": {"dramaturg-embedding": {"digest": f"sha256:{'0' * 64}"}}}


def assert_equal(chart: Rendering, kustomized: Rendering) -> None:
    """Asserts that both have the same objects."""
    ours, theirs = comparable(chart), comparable(kustomized)
    assert set(ours) == set(theirs)
    for key, expected in theirs.items():
        assert ours[key] == expected, key


def test_the_defaults_are_the_base() -> None:
    assert_equal(render(), folder("base"))


def test_the_values_of_production_are_the_overlay() -> None:
    assert_equal(production(), folder("overlays/production"))


@pytest.mark.parametrize(
    ("values", "components"),
    [
        ({"store": CLUSTER}, ("postgres",)),
        ({"migration": {"enabled": True}, "store": CLUSTER}, ("postgres", "migration")),
        ({"autoscaling": "keda", "store": CLUSTER}, ("postgres", "keda")),
        ({"tls": {"enabled": True}}, ("mtls",)),
        ({"tracing": {"enabled": True}}, ("tracing",)),
        ({"monitoring": {"enabled": True}}, ("monitoring",)),
        ({"ingress": {"enabled": True}}, ("gateway-api",)),
        ({"ingress": PROXIED, "tls": {"enabled": True}}, ("mtls", "gateway-api", "backend-tls")),
        ({"console": {"enabled": True}}, ("console",)),
        ({"console": {"enabled": True}, "tls": {"enabled": True}}, ("console", "mtls")),
        ({"egressProxy": PROXY}, ("egress-proxy",)),
        ({"cpuLimit": "4", "store": CLUSTER}, ("postgres", "cpu-limits")),
        ({"assignedUids": True, "migration": {"enabled": True}}, ("migration", "assigned-uids")),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else "",
)
def test_values_do_what_components_do(values: dict[str, Any], components: tuple[str, ...]) -> None:
    assert_equal(render(values), combined(components))


def test_the_variables_stand_before_their_use() -> None:
    for pod in production().services():
        names = [entry["name"] for entry in pod.container["env"]]
        if "DRAMATURG_AUTH_IDENTITIES" in names:
            assert names.index("POD_NAMESPACE") < names.index("DRAMATURG_AUTH_IDENTITIES"), pod.owner


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_objects_hold_to_their_schemas(version: str) -> None:
    assert_valid(production(), version)
    assert_valid(render({"autoscaling": "none", "cpuLimit": "2", "assignedUids": True}), version)


def test_the_linter_finds_nothing() -> None:
    helm = pytest.importorskip("helm_python")
    values = yaml.safe_load((CHART / "production.yaml").read_text(encoding="utf-8"))
    given: dict[str, Any]
    for given in ({}, values):
        found = helm.lint(str(CHART), given, strict=True)
        assert not found["errors"]
        assert [message["error"] for message in found["messages"]] == ["icon is recommended"]


def test_the_package_renders_as_the_folder_does(tmp_path: Path) -> None:
    """What a registry gets has no links to files outside of the chart."""
    helm = pytest.importorskip("helm_python")
    archive = helm.package(str(CHART), destination=str(tmp_path))
    assert Path(archive).stat().st_size < 500_000, "a release with its chart is stored in a Secret of 1 MB"
    with helm.Chart.load_archive(Path(archive).read_bytes()) as chart:
        rendered = chart.render({}, name="dramaturg", namespace="dramaturg")
    loaded = [
        found
        for name, text in rendered.items()
        if not name.endswith("NOTES.txt")
        for found in yaml.safe_load_all(text)
        if found is not None
    ]
    assert comparable(Rendering("archive", loaded)) == comparable(render())


def test_the_version_is_that_of_the_images() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    images = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["images"]
    assert {chart["version"], chart["appVersion"]} == {image["tag"] for image in images.values()}


def test_every_value_is_described_and_checked() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert set(schema["properties"]) == set(values)
    assert set(schema["properties"]["services"]["properties"]) == {pod.name for pod in folder("base").pods()}


@pytest.mark.parametrize(
    "values",
    [
        {"image": {}},
        {"images": {"dramaturg": {"digest": "latest"}}},
        {"services": {"poet": {}}},
        {"services": {"critic": {"replica": 3}}},
        {"replicas": {"minimum": 0}},
        {"judges": [{"role": "critic"}]},
        {"judges": [{"role": "critic", "name": "other"}]},
        {"judges": [{"role": "critic", "name": "other", "target": "other:1", "shadow": {"queue_size": 0}}]},
        {"roles": [{"name": "Style", "criteria": ["polite"]}]},
        {"console": {"port": 80}},
        {"scheduling": {"nodeName": "one"}},
        {"autoscaling": "always"},
        {"egressProxy": {"url": "http://proxy:3128"}},
        {"egressProxy": {"url": "http://proxy:3128", "cidr": "192.0.2.10", "port": 3128}},
        {"store": {"cidrs": ["300.0.2.10/32"]}},
        {"store": {"cidrs": ["192.0.2.10/33"]}},
        {"ingress": {"host": "https://dramaturg.example.com"}},
        {"services": {"critic": {"resources": {"limits": {"memory": "much"}}}}},
        {"services": {"critic": {"resources": {"limit": {"memory": "1Gi"}}}}},
        {"cpuLimit": "2 cores"},
        {"quotas": {"default": {"requests": 10}}},
        {"quotas": {"tenants": {"research": {"tokens_per_day": "1000"}}}},
    ],
    ids=str,
)
def test_wrong_values_are_refused(values: dict[str, Any]) -> None:
    helm = pytest.importorskip("helm_python")
    with pytest.raises(helm.HelmError):
        render(values)


@pytest.mark.parametrize(
    "values",
    [
        {"store": {"cidrs": ["203.0.113.7/32", "0.0.0.0/0", "2001:db8::/32", "::1/128"]}},
        {"ingress": {"host": "*.example.com"}},
        {"services": {"critic": {"resources": {"requests": {"cpu": 1, "memory": "1.5Gi"}}}}},
        {"services": {"critic": {"resources": {"limits": {"cpu": "500m", "memory": "1e9"}}}}},
        {"cpuLimit": 2},
        {"cpuLimit": "500m"},
        {"quotas": {"default": {"requests_per_minute": 10}, "tenants": {"research": {"usd_per_day": 0.5}}}},
        {"autoscaling": "none", "replicas": {"minimum": 9}},
    ],
    ids=str,
)
def test_values_at_the_bounds_are_taken(values: dict[str, Any]) -> None:
    assert render(values).objects


def test_the_group_that_the_platform_assigns_reads_the_certificates() -> None:
    values = {"tls": {"enabled": True, "fsGroup": 1000650000}, "assignedUids": True}
    groups = {
        volume["csi"]["volumeAttributes"]["csi.cert-manager.io/fs-group"]
        for pod in render(values).pods()
        for volume in pod.spec["volumes"]
        if "csi" in volume
    }
    assert groups == {"1000650000"}
    helm = pytest.importorskip("helm_python")
    with pytest.raises(helm.HelmError, match=r"tls with assignedUids requires tls\.fsGroup"):
        render({"tls": {"enabled": True}, "assignedUids": True})


def test_quotas_have_the_keys_of_the_section() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert set(schema["definitions"]["quota"]["properties"]) == set(Quota.model_fields)


@pytest.mark.parametrize(
    "values",
    [{"replicas": {"minimum": 9}}, {"services": {"critic": {"replicas": {"maximum": 1}}}}],
    ids=str,
)
def test_the_least_number_of_replicas_is_no_more_than_the_largest(values: dict[str, Any]) -> None:
    helm = pytest.importorskip("helm_python")
    with pytest.raises(helm.HelmError, match=r"replicas\.minimum \(\d\) is above replicas\.maximum \(\d\)"):
        render(values)


def test_tls_of_the_proxies_requires_tls_between_services() -> None:
    helm = pytest.importorskip("helm_python")
    with pytest.raises(helm.HelmError, match=r"ingress\.backendTls requires tls\.enabled"):
        render({"ingress": {"enabled": True, "backendTls": True}})


def test_an_image_is_named_by_its_digest() -> None:
    images = {pod.name: pod.container["image"] for pod in render(ENCODER).services()}
    assert images["embedding"] == f"dramaturg-embedding@sha256:{'0' * 64}"
    assert images["critic"] == "dramaturg:0.1.0"


def test_a_service_is_changed_by_its_name() -> None:
    critic = {
        "image": "registry.example.com/other-team/critic:2.1.0",
        "resources": {"limits": {"memory": "2Gi"}},
        "replicas": {"maximum": 3},
        "environment": {"EXAMPLE": 1},
        "callsModels": False,
    }
    changed, base = render({"services": {"critic": critic}}), render()
    pod = next(pod for pod in changed.services() if pod.name == "critic")
    assert pod.container["image"] == critic["image"]
    assert "args" not in pod.container
    assert pod.container["resources"]["limits"] == {"memory": "2Gi", "ephemeral-storage": "256Mi"}
    assert pod.environment()["EXAMPLE"] == "1"
    assert "calls-generation" not in pod.labels
    scaler = changed.one("HorizontalPodAutoscaler", "critic")["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 3)
    ours, theirs = comparable(changed), comparable(base)
    assert {key for key in ours if ours[key] != theirs[key]} == {
        ("Deployment", "critic"),
        ("HorizontalPodAutoscaler", "critic"),
    }


def test_a_judge_is_added_without_a_rollout() -> None:
    judge = {"role": "critic", "name": "other", "target": "critic.other-team:50051", "default": True}
    changed, base = render({"judges": [judge]}), render()
    data = changed.one("ConfigMap", "judges")["data"]
    assert tomllib.loads(data["50-values.toml"]) == {"judges": [judge]}
    ours = {(found["kind"], found["metadata"]["name"]): found for found in changed.objects}
    theirs = {(found["kind"], found["metadata"]["name"]): found for found in base.objects}
    assert [key for key in ours if ours[key] != theirs[key]] == [("ConfigMap", "judges")]


def test_every_key_of_a_judge_is_a_value(tmp_path: Path) -> None:
    """Nested tables belong to their judge, and the gateway reads all of them."""
    judges: list[dict[str, Any]] = [
        {
            "role": "critic",
            "name": "other",
            "target": "critic.other-team:50051",
            "expect_version": ">=1.4,<2",
            "version_policy": "pause",
            "timeout_seconds": 90.5,
            "max_concurrent_calls": 4000,
            "retry": {"attempts": 2, "codes": ["UNAVAILABLE", "ABORTED"]},
            "owner": "other-team",
            "labels": {"cost-centre": "[17]"},
            "connection": {"tls": True, "token_file": "/etc/dramaturg/judges/token"},
        },
        {"role": "critic", "name": "next", "target": "next:50051", "shadow": {"of": "llm", "queue_size": 64}},
        {
            "role": "critic",
            "name": "panel",
            "panel": {"rule": "weighted", "members": ["llm", {"judge": "other", "weight": 2}], "quorum": 1},
        },
        {"role": "style", "name": "ours", "target": "style:50051", "default": True},
    ]
    roles = [{"name": "style", "criteria": ["polite", {"id": "plain", "definition": "Short words."}]}]
    tables = load_judges(render({"judges": judges, "roles": roles}), tmp_path)
    expected = [JudgeEntry.model_validate(judge) for judge in judges]
    assert [one for one in tables.judges if one.name != "llm" and one.role in {"critic", "style"}] == expected
    assert list(tables.roles) == [RoleEntry.model_validate(role) for role in roles]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("judges", JudgeEntry),
        ("judges.panel", PanelTable),
        ("judges.shadow", ShadowTable),
        ("judges.retry", RetryTable),
        ("roles", RoleEntry),
    ],
)
def test_the_schema_has_the_keys_of_the_settings(path: str, kind: type[BaseModel]) -> None:
    first, _, nested = path.partition(".")
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]
    properties = schema[first]["items"]["properties"]
    found = properties[nested]["properties"] if nested else properties
    assert set(found) == set(kind.model_fields)


def test_settings_of_a_service_are_variables(tmp_path: Path) -> None:
    """Numbers keep their digits, which a float of Helm does not."""
    environment = {
        "DRAMATURG_GATEWAY_WORKER_PROCESSES": 4,
        "DRAMATURG_GATEWAY_WORKER_MEMORY_BYTES": 1_073_741_824,
        "DRAMATURG_GATEWAY_JUDGE_TIMEOUT_SECONDS": 0.5,
        "DRAMATURG_GATEWAY_CONSOLE": False,
        "DRAMATURG_GATEWAY_JUDGE_TARGETS": '["*.judges.svc:50051"]',
    }
    rendering = render({"services": {"gateway": {"environment": environment}}})
    pod = next(pod for pod in rendering.services() if pod.name == "gateway")
    settings = load_settings(rendering, pod, tmp_path)
    assert isinstance(settings, GatewaySettings)
    assert (settings.worker_processes, settings.worker_memory_bytes) == (4, 1 << 30)
    assert settings.judge_timeout_seconds == 0.5
    assert settings.console is False
    assert settings.judge_targets == ("*.judges.svc:50051",)


def test_pods_run_where_the_values_say() -> None:
    scheduling = {
        "nodeSelector": {"pool": "evaluation"},
        "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "batch",
    }
    rendering = render({"scheduling": scheduling, "migration": {"enabled": True}})
    for pod in rendering.pods():
        assert {name: pod.spec.get(name) for name in scheduling} == scheduling, pod.owner
    assert_valid(rendering, NEWEST)


def test_a_changed_configuration_rolls_its_service_alone() -> None:
    configuration = "[graph]\nsolvers = 4\n"
    changed, base = render({"services": {"graph": {"configuration": configuration}}}), render()
    assert changed.one("ConfigMap", "graph")["data"]["dramaturg.toml"] == configuration
    templates = {
        name: [one.one("Deployment", name)["spec"]["template"]["metadata"] for one in (changed, base)]
        for name in ("graph", "critic")
    }
    assert templates["graph"][0] != templates["graph"][1]
    assert templates["critic"][0] == templates["critic"][1]


def test_providers_and_quotas_are_tables_of_the_configuration(tmp_path: Path) -> None:
    providers: list[dict[str, Any]] = [
        {
            "name": "vllm",
            "kind": "openai",
            "base_url": "https://vllm.example.com/v1",
            "concurrency": {"maximum": 64},
        },
        {"name": "openai", "kind": "openai", "api_key_file": "/etc/dramaturg/providers/openai"},
    ]
    quotas = {"default": {"max_active_runs": 5}, "tenants": {"research": {"max_active_runs": 20}}}
    rendering = render({"providers": providers, "quotas": quotas})
    text = rendering.one("ConfigMap", "generation")["data"]["dramaturg.toml"]
    tables = tomllib.loads(text)["generation"]["providers"]
    assert list(tables) == ["vllm", "openai"]
    assert tables["vllm"] == {name: value for name, value in providers[0].items() if name != "name"}
    pod = next(pod for pod in rendering.services() if pod.name == "generation")
    settings = load_settings(rendering, pod, tmp_path)
    assert isinstance(settings, GenerationSettings)
    assert list(settings.providers) == ["vllm", "openai"]
    found = tomllib.loads(rendering.one("ConfigMap", "gateway")["data"]["dramaturg.toml"])
    assert found["quotas"] == quotas
    assert found["gateway"]


def test_the_proxy_replaces_the_egress_of_generation() -> None:
    rendering = render({"egressProxy": {"url": "http://proxy:8080", "cidr": "198.51.100.7/32", "port": 8080}})
    pod = next(pod for pod in rendering.services() if pod.name == "generation")
    assert pod.environment()["HTTPS_PROXY"] == "http://proxy:8080"
    egress = rendering.one("NetworkPolicy", "generation")["spec"]["egress"]
    assert egress[1:] == [
        {"to": [{"ipBlock": {"cidr": "198.51.100.7/32"}}], "ports": [{"protocol": "TCP", "port": 8080}]}
    ]


def test_an_external_database_is_migrated_before_the_installation_and_each_upgrade() -> None:
    values = {"migration": {"enabled": True}, "store": {"cidrs": ["203.0.113.7/32"]}}
    for upgrade in (False, True):
        rendering = render(values, upgrade=upgrade)
        hooks = [found for found in rendering.objects if HOOK in found["metadata"].get("annotations", {})]
        before = [found for found in hooks if not is_test(found)]
        assert [found["kind"] for found in before] == ["ServiceAccount", "NetworkPolicy", "Job"]
        assert {found["metadata"]["annotations"][HOOK] for found in before} == {"pre-install,pre-upgrade"}
        weights = [int(found["metadata"]["annotations"]["helm.sh/hook-weight"]) for found in before]
        assert weights == sorted(weights)
        assert len(set(weights)) == 3
    # The policy of the Job is created with it, before those of the services.
    for name in ("migration", "calls-store"):
        egress = rendering.one("NetworkPolicy", name)["spec"]["egress"]
        assert {
            "to": [{"ipBlock": {"cidr": "203.0.113.7/32"}}],
            "ports": [{"protocol": "TCP", "port": 5432}],
        } in egress


def test_a_database_of_the_chart_is_migrated_with_the_installation_and_before_each_upgrade() -> None:
    values = {"migration": {"enabled": True}, "store": {"cluster": {"enabled": True}}}
    assert "annotations" not in render(values).one("Job", "migration")["metadata"]
    job = render(values, upgrade=True).one("Job", "migration")
    assert job["metadata"]["annotations"][HOOK] == "pre-upgrade"


def test_the_test_asks_the_gateway_as_a_client_of_the_namespace_does() -> None:
    for rendering, encrypted in ((render(), False), (production(), True)):
        (pod,) = [found for found in rendering.of("Pod") if is_test(found)]
        (container,) = pod["spec"]["containers"]
        assert container["command"][:3] == ["python", "-m", "dramaturg.service.health_check"]
        assert pod["metadata"]["labels"]["dramaturg-client"] == "true"
        names = {entry["name"] for entry in container.get("env", [])}
        assert names == ({"DRAMATURG_CHANNEL_TLS_CA_FILE"} if encrypted else set())
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        egress = rendering.one("NetworkPolicy", "test")["spec"]["egress"]
        assert {"to": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "gateway"}}}],
                "ports": [{"protocol": "TCP", "port": "grpc"}]} in egress  # fmt: skip


def test_containers_of_hooks_fit_a_quota_on_limits_of_the_processor() -> None:
    rendering = render({"cpuLimit": "2", "assignedUids": True, "migration": {"enabled": True}})
    specs = [pod.spec for pod in rendering.pods()] + [found["spec"] for found in rendering.of("Pod")]
    for spec in specs:
        assert spec["containers"][0]["resources"]["limits"]["cpu"] == "2"
        assert "runAsUser" not in spec["securityContext"]


def test_the_notes_name_the_next_three_commands() -> None:
    helm = pytest.importorskip("helm_python")
    with helm.Chart.load(str(CHART)) as chart:
        rendered = chart.render({}, name="trial", namespace="team-a")
    (notes,) = [text for name, text in rendered.items() if name.endswith("NOTES.txt")]
    commands = [line.strip() for line in notes.splitlines() if line.startswith("  ")]
    assert [command.split()[0] for command in commands] == ["kubectl", "helm", "kubectl"]
    assert all("-n team-a" in command for command in commands)


def test_a_release_in_another_namespace_names_its_own_nowhere() -> None:
    helm = pytest.importorskip("helm_python")
    values = yaml.safe_load((CHART / "production.yaml").read_text(encoding="utf-8"))
    with helm.Chart.load(str(CHART)) as chart:
        rendered = chart.render(values, name="dramaturg", namespace="team-a")
    text = "\n".join(rendered.values())
    for name in ("ns/dramaturg/", ".dramaturg.svc", "namespace: dramaturg\n"):
        assert name not in text, name
