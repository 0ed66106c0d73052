"""Another namespace than the overlay's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from tests.k8s.rendered import K8S, OVERLAYS, Rendering, combined, folder, kustomize

NAMESPACE = "team-a"


def moved(overlay: str, place: Path) -> Rendering:
    """An overlay with another namespace over it."""
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": NAMESPACE,
        "resources": [os.path.relpath(K8S / "overlays" / overlay, place.resolve())],
    }
    (place / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
    return Rendering(overlay, kustomize(place))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_in_another_namespace_names_its_own_nowhere(overlay: str, tmp_path: Path) -> None:
    rendering = moved(overlay, tmp_path)
    for found in rendering.objects:
        text = yaml.safe_dump(found)
        for name in ("ns/dramaturg/", ".dramaturg.svc", "namespace: dramaturg\n"):
            assert name not in text, f"{found['kind']}/{found['metadata']['name']}: {name}"


def test_services_are_recognised_by_the_namespace_of_their_pod() -> None:
    """The kubelet expands a variable only where it stands before its use."""
    for pod in folder("overlays/production").services():
        entries = pod.container["env"]
        names = [entry["name"] for entry in entries]
        assert len(names) == len(set(names)), pod.owner
        if "DRAMATURG_AUTH_IDENTITIES" not in names:
            assert pod.name == "gateway", pod.owner
            continue
        assert names.index("POD_NAMESPACE") < names.index("DRAMATURG_AUTH_IDENTITIES"), pod.owner
        entry = entries[names.index("POD_NAMESPACE")]
        assert entry["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}, pod.owner
        identities = entries[names.index("DRAMATURG_AUTH_IDENTITIES")]["value"]
        assert "/ns/$(POD_NAMESPACE)/sa/*" in identities, pod.owner


def test_the_autoscaler_of_the_base_is_the_one_that_keda_takes_over() -> None:
    base = folder("base").one("HorizontalPodAutoscaler", "gateway")
    scaled = combined(("keda",)).one("ScaledObject", "gateway")
    taken = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["name"]
    assert taken == base["metadata"]["name"]
    assert scaled["metadata"]["annotations"]["scaledobject.keda.sh/transfer-hpa-ownership"] == "true"
