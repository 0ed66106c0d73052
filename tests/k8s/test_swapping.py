"""A judge is swapped by one patch, and the instructions show that patch."""

from __future__ import annotations

import yaml

from dramaturg.judge.roles import CRITIC
from tests.k8s.rendered import K8S, Object, Rendering, folder

THEIRS = "registry.example.com/other-team/critic:2.1.0"


def differences(one: Rendering, other: Rendering) -> list[Object]:
    """The objects of the other that are not in the one as they are."""
    return [found for found in other.objects if found not in one.objects]


def test_one_patch_puts_another_critic_in_the_place_of_ours() -> None:
    base, swapped = folder("base"), folder("examples/another-critic")
    (changed,) = differences(base, swapped)
    ours = base.one("Deployment", "critic")
    assert (changed["kind"], changed["metadata"]["name"]) == ("Deployment", "critic")
    container = changed["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == THEIRS
    assert "args" not in container
    assert container["readinessProbe"]["grpc"]["service"] == CRITIC.contract
    expected = ours["spec"]["template"]["spec"]["containers"][0] | {"image": THEIRS}
    assert container == {name: value for name, value in expected.items() if name != "args"}


def test_the_instructions_show_the_patch_that_is_rendered_here() -> None:
    kustomization = yaml.safe_load(
        (K8S / "examples/another-critic/kustomization.yaml").read_text(encoding="utf-8")
    )
    blocks = (K8S / "README.md").read_text(encoding="utf-8").split("```yaml\n")[1:]
    shown = [yaml.safe_load(block.split("```")[0]) for block in blocks]
    assert {"patches": kustomization["patches"]} in shown


def test_another_critic_beside_ours_has_what_every_service_has() -> None:
    rendering = folder("examples/two-critics")

    def kinds(name: str) -> list[str]:
        return [found["kind"] for found in rendering.objects if found["metadata"]["name"] == name]

    assert kinds("other-critic") == kinds("critic") != []
    assert rendering.one("Deployment", "critic") == folder("base").one("Deployment", "critic")
