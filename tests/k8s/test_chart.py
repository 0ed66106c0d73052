"""The chart: its sizes, its values, and what of it kustomize applies."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from gateway.quotas.settings import Quota
from gateway.settings import GatewaySettings, JudgeEntry, PanelTable, RetryTable, RoleEntry, ShadowTable
from services.generation.settings import GenerationSettings
from tests.k8s.charts import RENDERED, files, values_of
from tests.k8s.configured import load_judges, load_settings
from tests.k8s.rendered import CHART, EXPECTED, K8S, Rendering, at, example, faults, folder, parsed, render
from tests.k8s.test_schemas import assert_valid
from tests.support.kubernetes import NEWEST, OLDEST

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
EIGHT = {"gateway", "generation", "agents", "roles", "graph", "judging", "embedding", "alignment"}


@pytest.mark.parametrize("name", RENDERED)
def test_what_kustomize_applies_is_what_the_chart_renders(name: str) -> None:
    """`make rendered` writes it again."""
    place = K8S / "rendered" / name
    assert {file.name: file.read_text(encoding="utf-8") for file in place.iterdir()} == files(name)


@pytest.mark.parametrize(
    ("size", "deployments"),
    {
        "single": {"gateway"},
        "standard": EIGHT,
        "separate": {pod.name for pod in folder("base").pods()},
    }.items(),
)
def test_a_size_has_its_deployments(size: str, deployments: set[str]) -> None:
    assert {pod.name for pod in render({"size": size}).pods()} == deployments
    assert render({"size": "standard"}).objects == render().objects


@pytest.mark.parametrize("what", EXPECTED["rendered"])
def test_values_render(what: str) -> None:
    """Each row of `rendered` in expected.yaml. `changes`: what differs from the default."""
    row = EXPECTED["rendered"][what]
    rendering = render(row["values"])
    assert faults(rendering, row["expected"]) == []
    assert_valid(rendering, NEWEST)
    if "changes" in row:
        assert (
            rendering.differences(render({"size": row["values"].get("size", "standard")})) == row["changes"]
        )


@pytest.mark.parametrize("values", EXPECTED["refused"], ids=str)
def test_wrong_values_are_refused(values: dict[str, Any]) -> None:
    helm = pytest.importorskip("helm_python")
    with pytest.raises(helm.HelmError):
        render(values)


@pytest.mark.parametrize("values", EXPECTED["taken"], ids=str)
def test_values_at_the_bounds_are_taken(values: dict[str, Any]) -> None:
    for version in (OLDEST, NEWEST):
        assert_valid(render(values), version)


@pytest.mark.parametrize(("message", "values"), EXPECTED["contradictory"].items())
def test_values_that_contradict_each_other_are_named(message: str, values: dict[str, Any]) -> None:
    helm = pytest.importorskip("helm_python")
    with pytest.raises(helm.HelmError, match=re.escape(message)):
        render(values)


def test_every_value_is_checked_and_those_of_all_services_are_those_of_one() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert set(SCHEMA["properties"]) == set(values)
    of_one = set(SCHEMA["definitions"]["ofOneService"]["enum"])
    assert set(SCHEMA["definitions"]["service"]["properties"]) == of_one | set(values["defaults"])
    assert not of_one & set(values["defaults"])


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("definitions quota", Quota),
        ("properties judges items", JudgeEntry),
        ("properties judges items properties panel", PanelTable),
        ("properties judges items properties shadow", ShadowTable),
        ("properties judges items properties retry", RetryTable),
        ("properties roles items", RoleEntry),
    ],
)
def test_the_schema_has_the_keys_of_the_settings(path: str, kind: type[BaseModel]) -> None:
    assert set(at(SCHEMA, path)["properties"]) == set(kind.model_fields)


def test_the_linter_finds_nothing() -> None:
    helm = pytest.importorskip("helm_python")
    for given in ({}, dict(values_of("production"))):
        found = helm.lint(str(CHART), given, strict=True)
        assert not found["errors"]
        assert [message["error"] for message in found["messages"]] == ["icon is recommended"]


def test_the_package_renders_as_the_folder_does(tmp_path: Path) -> None:
    helm = pytest.importorskip("helm_python")
    assert not [file for file in CHART.rglob("*") if file.is_symlink()], "Flux drops links"
    archive = Path(helm.package(str(CHART), destination=str(tmp_path)))
    assert archive.stat().st_size < 500_000, "a release with its chart is stored in a Secret of 1 MB"
    with helm.Chart.load_archive(archive.read_bytes()) as chart:
        assert parsed(chart.render({}, name="dramaturg", namespace="dramaturg")) == render().objects


def targets(rendering: Rendering, place: Path) -> dict[str, str]:
    """The addresses of judges, by role."""
    return {judge.role: judge.target for judge in load_judges(rendering, place).judges}


def test_one_value_splits_a_judge_off_and_the_others_keep_their_addresses(tmp_path: Path) -> None:
    """Judges have the same methods: at an old address a caller would get another judge's verdict."""
    before = targets(render(), tmp_path)
    for own in ({"separate": True}, {"image": "registry.example.com/other-team/critic:2.1.0"}):
        after = targets(render({"services": {"critic": own}}), tmp_path)
        assert after == before | {"critic": "critic:50051"} != before
    without = targets(render({"services": {"critic": {"enabled": False}}}), tmp_path)
    assert without == {role: target for role, target in before.items() if role != "critic"}


def test_another_critic_takes_the_place_of_ours_or_stands_beside_it() -> None:
    """By one value each, which the instructions show."""
    base, swapped, both = folder("base"), folder("examples/another-critic"), folder("examples/two-critics")
    assert swapped.differences(base) == ["ConfigMap/critic", "Deployment/critic", "NetworkPolicy/critic"]
    theirs = base.pod("critic").container | {"image": "registry.example.com/other-team/critic:2.1.0"}
    assert swapped.pod("critic").container == {name: one for name, one in theirs.items() if name != "args"}

    added = set(both.differences(base)) - {"ConfigMap/judges"}
    assert added == {
        f"{one['kind']}/other-critic" for one in base.objects if one["metadata"]["name"] == "critic"
    }
    blocks = (K8S / "README.md").read_text(encoding="utf-8").split("```yaml\n")[1:]
    shown = [yaml.safe_load(block.split("```")[0]) for block in blocks]
    assert all(example(name) in shown for name in ("another-critic", "two-critics"))


def test_every_key_of_a_judge_is_a_value(tmp_path: Path) -> None:
    """Nested tables belong to their judge, and the gateway reads all of them."""
    given = yaml.safe_load("""
        roles: [{name: style, criteria: [polite, {id: plain, definition: Short words.}]}]
        judges:
          - {role: critic, name: other, target: "critic.other-team:50051", expect_version: ">=1.4,<2",
             version_policy: pause, timeout_seconds: 90.5, max_concurrent_calls: 4000, owner: other-team,
             retry: {attempts: 2, codes: [UNAVAILABLE, ABORTED]}, labels: {cost-centre: "[17]"},
             connection: {tls: true, token_file: /etc/dramaturg/judges/token}}
          - {role: critic, name: next, target: "next:50051", shadow: {of: llm, queue_size: 64}}
          - role: critic
            name: panel
            panel: {rule: weighted, members: [llm, {judge: other, weight: 2}], quorum: 1}
          - {role: style, name: ours, target: "style:50051", default: true}""")
    tables = load_judges(render(given), tmp_path)
    expected = [JudgeEntry.model_validate(judge) for judge in given["judges"]]
    assert [one for one in tables.judges if one.name != "llm" and one.role in {"critic", "style"}] == expected
    assert list(tables.roles) == [RoleEntry.model_validate(role) for role in given["roles"]]


def test_settings_of_a_service_are_variables(tmp_path: Path) -> None:
    given = [
        {"name": "DRAMATURG_GATEWAY_WORKER_MEMORY_BYTES", "value": "1073741824"},
        {"name": "DRAMATURG_GATEWAY_JUDGE_TARGETS", "value": '["*.judges.svc:50051"]'},
    ]
    rendering = render({"services": {"gateway": {"extraEnv": given}}})
    settings = load_settings(rendering, rendering.pod("gateway"), tmp_path)
    assert isinstance(settings, GatewaySettings)
    assert settings.worker_memory_bytes == 1 << 30
    assert settings.judge_targets == ("*.judges.svc:50051",)


def test_providers_and_quotas_are_tables_of_the_configuration(tmp_path: Path) -> None:
    """In the order of the values: the first provider is the default."""
    given = yaml.safe_load("""
        providers:
          - {name: vllm, kind: chat, base_url: "https://vllm.example.com/v1", concurrency: {maximum: 64}}
          - {name: openai, kind: chat, api_key_file: /etc/dramaturg/providers/openai}
        quotas: {default: {max_active_runs: 5}, tenants: {research: {max_active_runs: 20}}}""")
    rendering = render(given)
    tables = tomllib.loads(rendering.configuration(rendering.pod("generation")))["generation"]["providers"]
    assert [{"name": name, **table} for name, table in tables.items()] == given["providers"]
    settings = load_settings(rendering, rendering.pod("generation"), tmp_path)
    assert isinstance(settings, GenerationSettings)
    assert list(settings.providers) == ["vllm", "openai"]
    found = tomllib.loads(rendering.configuration(rendering.pod("gateway")))
    assert found["quotas"] == given["quotas"]
    assert found["gateway"]


def test_the_notes_name_the_next_three_commands() -> None:
    helm = pytest.importorskip("helm_python")
    with helm.Chart.load(str(CHART)) as chart:
        rendered = chart.render({}, name="trial", namespace="team-a")
    (notes,) = [text for name, text in rendered.items() if name.endswith("NOTES.txt")]
    commands = [line.strip() for line in notes.splitlines() if line.startswith("  ")]
    assert [command.split()[0] for command in commands] == ["kubectl", "helm", "kubectl"]
    assert all("-n team-a" in command for command in commands)
