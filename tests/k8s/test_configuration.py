"""The manifests name variables, ports, contracts and files that the code has."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dramaturg.api
from dramaturg.judge.roles import ROLES
from dramaturg.service.settings import CONFIG_VARIABLE, ChannelSettings, ServerSettings
from dramaturg.service.telemetry.settings import MetricsSettings, TracesSettings
from gateway.runs.settings import RunsSettings
from gateway.settings import GatewaySettings
from services.embedding.settings import EmbeddingSettings
from services.generation.settings import EndpointSettings, GenerationSettings
from tests.k8s.configured import load_judges, load_settings, variables, write_configuration
from tests.k8s.rendered import (
    EXAMPLES,
    FAKE_SECRET,
    K8S,
    Rendering,
    at,
    combined,
    every_rendering,
    folder,
    render,
)

Render = Callable[[], Rendering]


def contracts() -> set[str]:
    """The full names of all gRPC services of the contracts."""
    walked = pkgutil.walk_packages(dramaturg.api.__path__, "dramaturg.api.")
    files = [importlib.import_module(one.name).DESCRIPTOR for one in walked if one.name.endswith("_pb2")]
    return {service.full_name for file in files for service in file.services_by_name.values()}


@every_rendering
def test_the_code_reads_what_each_pod_is_given(render: Render, tmp_path: Path) -> None:
    """Variables, tables, ports, probes and files; misspelt keys are refused when settings are read."""
    rendering, known, served = render(), {*variables(), CONFIG_VARIABLE}, contracts()
    for pod in rendering.pods():
        used = {name for name in pod.environment() if name.startswith("DRAMATURG_")}
        assert used <= known, f"{pod.owner}: {used - known}"
    for pod in rendering.services():
        with pytest.MonkeyPatch.context() as patch:
            write_configuration(rendering, pod, tmp_path, patch)
            server, channel, runs, traces = (
                ServerSettings(),
                ChannelSettings(),
                RunsSettings(),
                TracesSettings(),
            )
            metrics = MetricsSettings()
        settings = load_settings(rendering, pod, tmp_path)
        assert server.host == "0.0.0.0"
        assert (server.tls_certificate_file is None) == (not channel.encrypted)

        # Services in one process take the ports from that of the server on.
        count = len(pod.container.get("args", [""]))
        public = {f"grpc-{index}": server.port + index for index in range(1, count)}
        public |= {"grpc": server.port, "metrics": metrics.port}
        declared = {entry["name"]: entry["containerPort"] for entry in pod.container["ports"]}
        http = settings.http.port if isinstance(settings, GatewaySettings) else None
        assert declared == {**public, "probe": server.probe_port, **({"http": http} if http else {})}
        ports = rendering.one("Service", pod.name)["spec"]["ports"]
        assert {entry["name"]: entry["port"] for entry in ports} == public
        assert all(entry["targetPort"] == entry["name"] for entry in ports)

        startup, readiness, liveness = (
            pod.container[f"{name}Probe"] for name in ("startup", "readiness", "liveness")
        )
        assert {probe["grpc"]["port"] for probe in (startup, readiness, liveness)} == {server.probe_port}
        assert startup["grpc"]["service"] == liveness["grpc"]["service"] == ""
        assert readiness["grpc"]["service"] in served
        assert startup["periodSeconds"] * startup["failureThreshold"] >= 120

        needed = server.drain_delay_seconds + server.drain_grace_seconds + traces.flush_seconds
        needed += runs.drain_timeout_seconds if pod.name == "gateway" else 0
        assert server.drain_delay_seconds == 5
        assert pod.spec["terminationGracePeriodSeconds"] > needed, pod.owner

        named = [value for name, value in pod.environment().items() if name.endswith("_FILE")]
        if isinstance(settings, GenerationSettings):
            providers = [one for one in settings.providers.values() if isinstance(one, EndpointSettings)]
            named += [str(provider.api_key_file) for provider in providers if provider.api_key_file]
        if isinstance(settings, EmbeddingSettings) and settings.model_dir:
            named.append(str(settings.model_dir))
        mounts = [mount["mountPath"] for mount in pod.container["volumeMounts"]]
        for file in named:
            assert any(Path(file).is_relative_to(mount) for mount in mounts), f"{pod.owner}: {file}"


def test_readiness_names_the_contract_of_the_role_that_the_service_plays() -> None:
    rendering = folder("base")
    ready = {pod.name: pod.container["readinessProbe"]["grpc"]["service"] for pod in rendering.services()}
    for role in ROLES.values():
        for player in set(role.services) & ready.keys() - {"generation"}:
            assert ready[player] == role.contract
    assert ready["generation"] == "dramaturg.api.generation.v1.GenerationService"
    assert ready["gateway"] == "dramaturg.api.evaluation.v1.EvaluationService"


@pytest.mark.parametrize("path", ["base", "standard", "overlays/production", "examples/two-critics"])
def test_every_role_is_played_by_a_service_that_is_deployed(path: str, tmp_path: Path) -> None:
    rendering = folder(path)
    judges = load_judges(rendering, tmp_path).judges
    ports = [(pod.name, port) for pod in rendering.services() for port in pod.container["ports"]]
    deployed = {f"{name}:{port['containerPort']}" for name, port in ports if port["name"].startswith("grpc")}
    assert {judge.target for judge in judges} <= deployed
    # A role without a player at home needs one from elsewhere.
    assert {judge.role for judge in judges} >= {role.name for role in ROLES.values() if role.services}
    for role in ROLES.values():
        asked = [judge for judge in judges if judge.role == role.name]
        assert len(asked) <= 1 or sum(judge.default for judge in asked) == 1, f"no default for {role.name}"


OFFLINE = {(role, "offline") for role in ("synthesize", "critic", "execute", "commonsense", "rubric-judge")}


@pytest.mark.parametrize(
    ("render", "added"),
    [
        (lambda: combined(("offline",)), OFFLINE),
        (lambda: combined(("edges", "offline")), {*OFFLINE, ("edges", "trained")}),
        (lambda: combined(("edges",)), {("edges", "trained")}),
        (lambda: folder("examples/two-critics"), {("critic", "other")}),
    ],
)
def test_components_change_the_judges_as_meant(
    render: Render, added: set[tuple[str, str]], tmp_path: Path
) -> None:
    """A judge that is replaced keeps its role served; one that stands beside others is no default."""

    def judges(rendering: Rendering) -> dict[tuple[str, str], bool]:
        return {(judge.role, judge.name): judge.default for judge in load_judges(rendering, tmp_path).judges}

    there, base = judges(render()), judges(folder("base"))
    assert there.keys() - base.keys() == added
    assert {role for role, _ in there} == {role for role, _ in base}
    if not added & OFFLINE:
        assert base.keys() <= there.keys()
        assert not any(there[key] for key in added)


def test_the_judges_are_read_without_a_rollout() -> None:
    """A hash in the name would change the Deployment; a subPath would not follow the ConfigMap."""
    for rendering in (folder("base"), combined(("edges", "offline")), folder("examples/two-critics")):
        pod = rendering.pod("gateway")
        assert at(pod.spec, "volumes judges") == {"name": "judges", "configMap": {"name": "judges"}}
        assert not [one for one in pod.container["volumeMounts"] if "subPath" in one]


def test_the_gateways_memory_has_room_for_its_processes(tmp_path: Path) -> None:
    """Two readers of datasets, and those that compute reports; a process has code of its own besides."""
    rendering = folder("base")
    pod = rendering.pod("gateway")
    settings = load_settings(rendering, pod, tmp_path)
    assert isinstance(settings, GatewaySettings)
    code, gateway = 64 << 20, 200 << 20
    readers = 2 * (RunsSettings().dataset_memory_bytes + code)
    workers = settings.worker_processes * (settings.worker_memory_bytes + code)
    assert pod.container["resources"]["limits"]["memory"] == "2Gi"
    assert gateway + readers + workers <= 2 << 30


def test_stores_are_where_the_settings_look_for_them(tmp_path: Path) -> None:
    def stores(rendering: Rendering) -> tuple[Any, Any]:
        found = {pod.name: pod for pod in rendering.services()}
        with pytest.MonkeyPatch.context() as patch:
            write_configuration(rendering, found["gateway"], tmp_path, patch)
            runs = RunsSettings().url
            write_configuration(rendering, found.get("generation", found["gateway"]), tmp_path, patch)
            return runs, GenerationSettings().ledger_address()

    assert stores(folder("base")) == (FAKE_SECRET, FAKE_SECRET)
    local = {"size": "standard", "store": {"type": "sqlite"}}
    for rendering in (folder("overlays/local"), render(local)):
        assert all(address.startswith("sqlite:////var/lib/dramaturg/") for address in stores(rendering))
        for claim in rendering.of("PersistentVolumeClaim"):
            deployment = rendering.one("Deployment", claim["metadata"]["name"])["spec"]
            assert (deployment["strategy"], deployment["replicas"]) == ({"type": "Recreate"}, 1)


def test_the_embedding_service_loads_its_model_before_it_is_ready(tmp_path: Path) -> None:
    for rendering in (folder("base"), combined(("embeddings",))):
        pod = rendering.pod("embedding")
        settings = load_settings(rendering, pod, tmp_path)
        assert isinstance(settings, EmbeddingSettings)
        assert settings.preload


def test_routes_lead_to_contracts_that_there_are() -> None:
    route = combined(("gateway-api",)).one("GRPCRoute", "dramaturg")
    named = {match["method"]["service"] for rule in route["spec"]["rules"] for match in rule["matches"]}
    own = {name for name in contracts() if name.startswith("dramaturg.api.evaluation.")}
    of_roles = {role.contract for role in ROLES.values()}
    of_every_server = {"dramaturg.api.identity.v1.IdentityService", "grpc.health.v1.Health"}
    assert named == own | of_roles | of_every_server


def test_torch_is_in_no_image_but_that_which_needs_it() -> None:
    rendering = combined(("embeddings", "edges"))
    with_torch = {pod.name for pod in rendering.services() if "torch" in pod.container["image"]}
    assert with_torch == {"embedding", "edges"}
    assert {pod.container["image"] for pod in folder("base").services()} == {"dramaturg:0.1.0"}


def test_the_instructions_list_every_example() -> None:
    instructions = (K8S / "README.md").read_text(encoding="utf-8")
    assert not [name for name in EXAMPLES if f"`{name}.yaml`" not in instructions]


def test_the_gateway_is_scaled_by_the_samples_that_one_of_them_evaluates_at_once() -> None:
    scaled = combined(("keda",)).one("ScaledObject", "gateway")
    (trigger,) = [found for found in scaled["spec"]["triggers"] if found["type"] == "postgresql"]
    assert int(trigger["metadata"]["targetQueryValue"]) == RunsSettings().max_concurrent_samples
