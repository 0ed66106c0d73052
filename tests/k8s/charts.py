"""What kustomize applies: the chart, rendered into ``k8s/rendered`` by ``python -m tests.k8s.charts``."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from tests.k8s.rendered import CHART, K8S, applied, render

RENDERED = ("local", "production", "standard")
"""The folders of ``k8s/rendered``: the chart with the values of ``k8s/chart/NAME.yaml``, or with none."""
_OF_HELM = ("app.kubernetes.io/managed-by", "helm.sh/chart")
_HEAD = "# Rendered from k8s/chart by `make rendered`.\n"
_KUSTOMIZATION = """apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- manifests.yaml
"""


def values_of(name: str) -> Mapping[str, object]:
    """The values of a folder of ``k8s/rendered``."""
    file = CHART / f"{name}.yaml"
    return yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}


def files(name: str) -> Mapping[str, str]:
    """The files of a folder of ``k8s/rendered``."""
    objects = applied(render(values_of(name))).objects
    for found in objects:
        del found["metadata"]["namespace"]
        for label in _OF_HELM:
            found["metadata"]["labels"].pop(label, None)
    manifests = yaml.safe_dump_all(objects, width=150, default_flow_style=None)
    return {"kustomization.yaml": _HEAD + _KUSTOMIZATION, "manifests.yaml": _HEAD + manifests}


def main() -> None:
    """Writes all folders."""
    for name in RENDERED:
        (K8S / "rendered" / name).mkdir(parents=True, exist_ok=True)
        for file, text in files(name).items():
            (K8S / "rendered" / name / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
