"""The documented restore names what the manifests have, and leaves the services running.

An autoscaler leaves a Deployment of 0 replicas alone, and the manifests set none: the last command scales.
"""

from __future__ import annotations

import itertools
import re

from tests.k8s.rendered import ROOT, combined, folder

OPERATIONS = (ROOT / "docs" / "operate" / "operations.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    """The commands of the restore, without their comments."""
    (block,) = re.findall(r"^To restore,.*?^```[^\n]*\n(.*?)^```", OPERATIONS, re.MULTILINE | re.DOTALL)
    return [line for line in block.splitlines() if not line.startswith("#")]


def test_every_writer_of_the_store_is_stopped_and_started_again() -> None:
    rendering = combined(("postgres",))
    writers = {pod.name for pod in rendering.services() if "store-app" in pod.secrets()}
    scaled = [line for line in commands() if " scale deployment " in line]
    stopped, started = (set(line.split("deployment")[1].split("--")[0].split()) for line in scaled)
    assert stopped == started == writers
    assert scaled[0].endswith("--replicas=0")
    least = {rendering.one("HorizontalPodAutoscaler", name)["spec"]["minReplicas"] for name in writers}
    assert {int(scaled[1].rpartition("=")[2])} == least
    assert commands()[-1] == scaled[1]
    applied = next(line for line in commands() if line.startswith("kubectl apply"))
    assert commands().index(scaled[0]) < commands().index(applied) < commands().index(scaled[1])


def test_the_autoscalers_that_would_start_the_writers_are_deleted_before_they_are_stopped() -> None:
    kinds = {"hpa": "HorizontalPodAutoscaler", "scaledobject": "ScaledObject"}
    before = itertools.takewhile(lambda line: " scale " not in line, commands())
    words = [line.split(" delete ")[1].replace("--ignore-not-found", "").split() for line in before]
    deleted = {(kinds[kind], name) for kind, *names in words for name in names}
    for rendering in (folder("overlays/production"), combined(("postgres",))):
        scalers = [one for kind in kinds.values() for one in rendering.of(kind)]
        scaling = {(one["kind"], one["metadata"]["name"]) for one in scalers
                   if one["spec"]["scaleTargetRef"]["name"] in {"gateway", "generation"}}  # fmt: skip
        assert scaling <= deleted
