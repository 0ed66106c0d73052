"""The policies let through what the configuration asks for, and nothing else.

What is asked for is read from the configuration that each pod gets, with the settings classes of the code:
the gateway's judges, every ``*_target``, every provider. What is let through is computed from the policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gateway.settings import GatewaySettings
from services.generation.settings import EndpointSettings, GenerationSettings
from tests.k8s.configured import load_all, load_judges
from tests.k8s.rendered import Pod, Rendering, combined, every_rendering, folder

Arrow = tuple[str, str, int]
"""Who may call, whom, at which port."""

Node = tuple[str, Mapping[str, str], Mapping[str, int]]
"""A pod's name, labels and named ports."""

STORE: Node = ("store", {"cnpg.io/cluster": "store"}, {})
OUTSIDE = "outside"
GRPC_PORT, HTTPS_PORT, POSTGRES_PORT, PROXY_PORT = 50051, 443, 5432, 3128


def nodes(rendering: Rendering) -> list[Node]:
    """All pods of the namespace, the database's included."""
    found: list[Node] = [
        (
            pod.name,
            pod.labels,
            {port["name"]: port["containerPort"] for port in pod.container.get("ports", [])},
        )
        for pod in rendering.pods()
    ]
    return [*found, STORE] if rendering.of("Cluster") else found


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector chooses a pod. Expressions are not used here."""
    assert "matchExpressions" not in selector
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def rules(rendering: Rendering, labels: Mapping[str, str], direction: str) -> Iterator[dict[str, Any]]:
    """All rules of one direction that hold for a pod; asserts that some policy covers that direction."""
    specs = [policy["spec"] for policy in rendering.of("NetworkPolicy")]
    policies = [
        spec
        for spec in specs
        if selects(spec["podSelector"], labels) and direction.title() in spec["policyTypes"]
    ]
    assert policies, f"{dict(labels)}: no policy of {direction}, so everything is let through"
    for policy in policies:
        yield from policy.get(direction, [])


def peers(rule: Mapping[str, Any], direction: str, rendering: Rendering) -> Iterator[Node]:
    """The pods of this namespace that a rule names."""
    for peer in rule["to" if direction == "egress" else "from"]:
        if peer.get("namespaceSelector", {}) == {} and "podSelector" in peer:
            yield from (node for node in nodes(rendering) if selects(peer["podSelector"], node[1]))


def ports(rule: Mapping[str, Any], callee: Node) -> Iterator[int]:
    """The ports of a rule; names are those of the one who is called."""
    for port in (entry["port"] for entry in rule["ports"]):
        if isinstance(port, int) or port in callee[2]:
            yield port if isinstance(port, int) else callee[2][port]


def let_through(rendering: Rendering, direction: str) -> set[Arrow]:
    """The arrows within the namespace that one end's policies allow."""
    arrows = set()
    for node in nodes(rendering):
        if direction == "egress" and node is STORE:
            continue
        for rule in rules(rendering, node[1], direction):
            for peer in peers(rule, direction, rendering):
                caller, callee = (node, peer) if direction == "egress" else (peer, node)
                arrows |= {(caller[0], callee[0], port) for port in ports(rule, callee)}
    return {arrow for arrow in arrows if arrow[0] != arrow[1]}


def outward(rendering: Rendering) -> set[Arrow]:
    """Who may leave the cluster."""
    return {
        (pod.name, OUTSIDE, port["port"])
        for pod in rendering.pods()
        for rule in rules(rendering, pod.labels, "egress")
        if any("ipBlock" in peer for peer in rule["to"])
        for port in rule["ports"]
    }


def asked_for(rendering: Rendering, place: Path) -> set[Arrow]:
    """The arrows that the configuration needs."""
    arrows: set[Arrow] = set()
    stored = bool(rendering.of("Cluster"))
    for pod in rendering.pods():
        if stored and "store-app" in pod.secrets():
            arrows.add((pod.name, STORE[0], POSTGRES_PORT))
    for pod in rendering.services():
        loaded = load_all(rendering, pod, place)
        if not loaded:
            # Another team's judge keeps the arrows that its labels tell.
            labelled = {label.removeprefix("calls-") for label in pod.labels if label.startswith("calls-")}
            arrows |= {(pod.name, callee, GRPC_PORT) for callee in labelled - {"store"}}
        for settings in loaded:
            for target in targets(settings, rendering, place):
                host, _, port = target.rpartition(":")
                arrows.add((pod.name, host, int(port)))
            if isinstance(settings, GenerationSettings):
                arrows |= {provider_arrow(pod, provider) for provider in settings.providers.values()}
    return arrows


def targets(settings: Any, rendering: Rendering, place: Path) -> Iterator[str]:
    """The addresses in a service's settings."""
    if isinstance(settings, GatewaySettings):
        yield from (judge.target for judge in load_judges(rendering, place).judges)
    else:
        fields = [field for field in settings.model_fields_set if field.endswith("_target")]
        yield from (getattr(settings, field) for field in fields)


def provider_arrow(pod: Pod, provider: Any) -> Arrow:
    """Where a provider is: a service of the cluster, whose name has no dot, or outside."""
    assert isinstance(provider, EndpointSettings)
    url = urlsplit(provider.address)
    if url.hostname and "." not in url.hostname:
        return pod.name, url.hostname, url.port or HTTPS_PORT
    return pod.name, OUTSIDE, HTTPS_PORT


@every_rendering
def test_the_arrows_are_those_of_the_configuration(render: Callable[[], Rendering], tmp_path: Path) -> None:
    rendering = render()
    within = {arrow for arrow in asked_for(rendering, tmp_path) if arrow[1] != OUTSIDE}
    assert let_through(rendering, "egress") == within
    assert {arrow for arrow in let_through(rendering, "ingress") if arrow[0] != "store"} == within

    names = {pod.name for pod in rendering.pods()}
    caller = next(name for name in ("vllm", "generation", "gateway") if name in names)
    port = PROXY_PORT if "egress-proxy" in rendering.name else HTTPS_PORT
    assert outward(rendering) == {(caller, OUTSIDE, port)}


@every_rendering
def test_other_namespaces_are_called_for_names_and_traces_alone(render: Callable[[], Rendering]) -> None:
    """Private addresses and the clouds' metadata are not outside; the port for probes is the node's alone.

    It is in plain text and asks for nothing. No policy holds traffic from a pod's own node up.
    """
    rendering = render()
    private = {"10.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"}
    for node, pod in zip(nodes(rendering), rendering.pods(), strict=False):
        named = {}
        for rule in rules(rendering, pod.labels, "egress"):
            for peer in rule["to"]:
                if labels := peer.get("namespaceSelector", {}).get("matchLabels"):
                    ports_named = {(port["protocol"], port["port"]) for port in rule["ports"]}
                    named[labels["kubernetes.io/metadata.name"]] = ports_named
                if peer.get("ipBlock", {}).get("cidr") == "0.0.0.0/0":
                    assert private <= set(peer["ipBlock"]["except"])
        assert named.pop("kube-system") == {("UDP", 53), ("TCP", 53)}
        traced = "OTEL_EXPORTER_OTLP_ENDPOINT" in pod.environment()
        assert named == ({"observability": {("TCP", 4317)}} if traced else {})
        for rule in rules(rendering, pod.labels, "ingress"):
            assert node[2].get("probe") is None or node[2]["probe"] not in set(ports(rule, node)), pod.owner


def test_a_forgotten_arrow_is_seen() -> None:
    """The test of the test: without one rule the two sides differ."""
    rendering = folder("base")
    forgotten = rendering.one("NetworkPolicy", "graph")
    with pytest.raises(AssertionError, match="everything is let through"):
        let_through(Rendering("damaged", [one for one in rendering.objects if one != forgotten]), "egress")


def test_the_whole_picture() -> None:
    """Written out once, as in the design: the gateway asks all, those with a model ask generation."""
    arrows = let_through(folder("base"), "egress")
    called = {"generation", "embedding", "graph", "alignment", "rule-judge"}
    asking = {"synthesize", "critic", "execute", "commonsense", "script-judge", "pair-judge", "rating-judge",
              "rubric-judge", "challenge-judge", "roles"}  # fmt: skip
    assert arrows == {
        *(("gateway", name, GRPC_PORT) for name in asking | called),
        *((name, "generation", GRPC_PORT) for name in asking),
        *((name, "embedding", GRPC_PORT) for name in ("roles", "alignment")),
    }


def test_with_a_database_two_reach_it() -> None:
    arrows = let_through(combined(("postgres", "migration")), "egress")
    assert {arrow for arrow in arrows if arrow[1] == "store"} == {
        (name, "store", POSTGRES_PORT) for name in ("gateway", "generation")
    }


def test_a_swapped_critic_that_calls_no_model_has_no_way_to_generation() -> None:
    for direction in ("egress", "ingress"):
        gone = let_through(folder("base"), direction) - let_through(
            folder("examples/another-critic"), direction
        )
        assert gone == {("critic", "generation", GRPC_PORT)}
