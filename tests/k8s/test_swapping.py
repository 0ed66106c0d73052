"""A judge is swapped by one value, and the instructions show it."""

from __future__ import annotations

import yaml

from dramaturg.judge.roles import CRITIC
from tests.k8s.rendered import K8S, Object, Rendering, folder

THEIRS = "registry.example.com/other-team/critic:2.1.0"


def differences(one: Rendering, other: Rendering) -> list[Object]:
    """The objects of the other that are not in the one as they are."""
    return [found for found in other.objects if found not in one.objects]


def test_one_value_puts_another_critic_in_the_place_of_ours() -> None:
    base, swapped = folder("base"), folder("examples/another-critic")
    changes = {found["kind"]: found for found in differences(base, swapped)}
    assert {found["metadata"]["name"] for found in changes.values()} == {"critic"}
    assert set(changes) == {"ConfigMap", "Deployment", "NetworkPolicy"}
    changed = changes["Deployment"]
    ours = base.one("Deployment", "critic")
    container = changed["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == THEIRS
    assert "args" not in container
    assert container["readinessProbe"]["grpc"]["service"] == CRITIC.contract
    expected = ours["spec"]["template"]["spec"]["containers"][0] | {"image": THEIRS}
    assert container == {name: value for name, value in expected.items() if name != "args"}


def test_the_instructions_show_the_values_that_are_rendered_here() -> None:
    blocks = (K8S / "README.md").read_text(encoding="utf-8").split("```yaml\n")[1:]
    shown = [yaml.safe_load(block.split("```")[0]) for block in blocks]
    for name in ("another-critic", "two-critics"):
        assert yaml.safe_load((K8S / f"examples/{name}.yaml").read_text(encoding="utf-8")) in shown


def test_another_critic_beside_ours_has_what_every_service_has() -> None:
    rendering = folder("examples/two-critics")

    def kinds(name: str) -> list[str]:
        return [found["kind"] for found in rendering.objects if found["metadata"]["name"] == name]

    assert kinds("other-critic") == kinds("critic") != []
    assert rendering.one("Deployment", "critic") == folder("base").one("Deployment", "critic")
