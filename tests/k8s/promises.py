"""What each component promises of a rendering that contains it, whatever stands beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.k8s.rendered import Pod, Rendering


def pod_of(rendering: Rendering, name: str) -> Pod:
    """The pod of a service."""
    return next(pod for pod in rendering.pods() if pod.name == name)


def every_service(rendering: Rendering, holds: Callable[[Pod], bool]) -> bool:
    """Whether something holds for the pods of all services, those that components add included."""
    return all(holds(pod) for pod in rendering.services())


def has(rendering: Rendering, *objects: tuple[str, str]) -> bool:
    """Whether there are these objects, given by kind and name."""
    return set(objects) <= {(found["kind"], found["metadata"]["name"]) for found in rendering.objects}


def encrypted(pod: Pod) -> bool:
    """Whether a service has a certificate, and knows who may call it."""
    names = pod.environment().keys()
    known = {"DRAMATURG_AUTH_IDENTITIES"} if pod.name != "gateway" else {"DRAMATURG_AUTH_TOKENS_FILE"}
    return {"DRAMATURG_SERVER_TLS_CERTIFICATE_FILE", "DRAMATURG_CHANNEL_TLS_CA_FILE", *known} <= names


def judge_file(rendering: Rendering, name: str) -> str:
    """A file of judges."""
    return str(rendering.one("ConfigMap", "judges")["data"].get(name, ""))


PROMISES: Mapping[str, Callable[[Rendering], bool]] = {
    "assigned-uids": lambda found: every_service(
        found, lambda pod: "runAsUser" not in pod.spec["securityContext"]
    ),
    "backend-tls": lambda found: has(
        found, ("BackendTLSPolicy", "gateway"), ("Certificate", "authority-public")
    ),
    "console": lambda found: (
        pod_of(found, "gateway").environment().get("DRAMATURG_GATEWAY_CONSOLE") == "true"
        and "http" in {port["name"] for port in pod_of(found, "gateway").container["ports"]}
        and has(found, ("Service", "console"), ("NetworkPolicy", "console"))
    ),
    "cpu-limits": lambda found: every_service(
        found, lambda pod: "cpu" in pod.container["resources"]["limits"]
    ),
    "edges": lambda found: (
        'name = "trained"' in judge_file(found, "10-added.toml") and has(found, ("Deployment", "edges"))
    ),
    "egress-proxy": lambda found: "HTTPS_PROXY" in pod_of(found, "generation").environment(),
    "embeddings": lambda found: "torch" in pod_of(found, "embedding").container["image"],
    "gateway-api": lambda found: has(found, ("Gateway", "dramaturg"), ("GRPCRoute", "dramaturg")),
    "keda": lambda found: (
        has(found, ("ScaledObject", "gateway")) and not has(found, ("HorizontalPodAutoscaler", "gateway"))
    ),
    "migration": lambda found: all(
        "initContainers" in pod_of(found, name).spec for name in ("gateway", "generation")
    ),
    "monitoring": lambda found: has(found, ("ServiceMonitor", "dramaturg"), ("PrometheusRule", "dramaturg")),
    "mtls": lambda found: every_service(found, encrypted),
    "offline": lambda found: (
        judge_file(found, "00-built-in.toml").count('name = "offline"') == 5
        and all(
            "calls-generation" not in pod_of(found, name).labels
            for name in ("critic", "execute", "rubric-judge")
        )
    ),
    "postgres": lambda found: (
        has(found, ("Cluster", "store"))
        and all(pod_of(found, name).labels.get("calls-store") == "true" for name in ("gateway", "generation"))
    ),
    "tracing": lambda found: (
        every_service(found, lambda pod: "OTEL_EXPORTER_OTLP_ENDPOINT" in pod.environment())
        and "observability" in str(found.one("NetworkPolicy", "critic"))
    ),
    "vllm": lambda found: (
        has(found, ("Deployment", "vllm")) and "providers" not in pod_of(found, "generation").secrets()
    ),
}
"""The promise of each component."""
