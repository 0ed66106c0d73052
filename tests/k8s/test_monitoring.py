"""What is watched is what there is: metrics, alerts, the dashboard and the page that explains them."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

import gateway
import services
from dramaturg.service import telemetry
from dramaturg.service.telemetry import new_registry
from dramaturg.service.telemetry.instruments import Instrument, declared
from tests.k8s.rendered import ROOT, combined
from tests.support.kubernetes import Object
from tests.support.telemetry import Scrape

OPERATIONS = (ROOT / "docs" / "operate" / "operations.md").read_text(encoding="utf-8")
FROM_PROMETHEUS = {"up"}
"""What Prometheus makes itself of every target."""
WORDS = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
PREFIXES = ("dramaturg_", "gen_ai_client_", "grpc_server_", "grpc_client_", "process_", "python_", "up")


def instruments() -> list[Instrument]:
    """All that is counted: by convention in modules named ``metrics``, and in the runtime's own."""
    names = (".metrics", ".evaluations.streams", ".judges.monitors")
    for package in (gateway, services, telemetry):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith(names) or package is telemetry:
                importlib.import_module(module.name)
    # Tests declare some of their own.
    return [found for found in declared() if found.name.startswith(("dramaturg_", "gen_ai_", "grpc_"))]


def series() -> dict[str, set[str]]:
    """The names of all series, with their labels."""
    found: dict[str, set[str]] = {name: set() for name in FROM_PROMETHEUS}
    for instrument in instruments():
        labels = set(instrument.labels)
        if instrument.kind == "histogram":
            found |= {f"{instrument.name}_{part}": labels for part in ("count", "sum")}
            found[f"{instrument.name}_bucket"] = labels | {"le"}
        else:
            found[instrument.name] = labels
    registry = new_registry()
    assert registry is not None
    for family in Scrape(generate_latest(registry).decode()).families.values():
        found |= {sample.name: set(sample.labels) for sample in family.samples}
    return found


def rules() -> list[Object]:
    groups = combined(("monitoring",)).one("PrometheusRule", "dramaturg")["spec"]["groups"]
    return [found for group in groups for found in group["rules"]]


def dashboard() -> Object:
    (text,) = combined(("monitoring",)).one("ConfigMap", "dashboard")["data"].values()
    value: Object = json.loads(text)
    return value


def panels() -> list[Object]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression, with whose it is."""
    yield from ((rule["alert"], rule["expr"]) for rule in rules())
    yield from ((panel["title"], target["expr"]) for panel in panels() for target in panel["targets"])
    yield from ((one["name"], one.get("definition", "")) for one in dashboard()["templating"]["list"])


def test_every_metric_that_is_watched_is_counted_with_the_labels_named() -> None:
    known = series()
    extra = {"job", "pod", "namespace", "app_kubernetes_io_part_of", "app_kubernetes_io_instance"}
    for owner, expression in expressions():
        unquoted = re.sub(r'"[^"]*"', '""', expression)
        named = {word for word in WORDS.findall(unquoted) if word.startswith(PREFIXES)} - extra
        named -= {label for labels in known.values() for label in labels}
        assert named <= known.keys(), f"{owner}: {named - known.keys()}"
        labels = set().union(*(known[name] for name in named)) | extra
        grouped = ",".join(re.findall(r"(?:by|on|ignoring) \(([^)]*)\)", unquoted))
        matched = " ".join(re.findall(r"\{([^}]*)\}", unquoted))
        used = {*re.findall(r"\w+", grouped), *re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", matched)}
        assert used <= labels, f"{owner}: {used - labels}"


def test_every_metric_is_on_the_dashboard() -> None:
    shown = " ".join(target["expr"] for panel in panels() for target in panel["targets"])
    missing = [found.name for found in instruments() if found.name not in shown]
    assert not missing


def test_label_values_in_alerts_are_those_that_are_counted() -> None:
    from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
    from gateway.evaluations.streams import reason_name
    from services.generation.calls import FailureKind
    from services.generation.providers.base import ANSWERED, CUT

    outcomes = {kind.value for kind in FailureKind} | {ANSWERED, CUT}
    reasons = {reason_name(value) for value in AbstainReason.values()}
    text = "\n".join(rule["expr"] for rule in rules())
    for matcher in re.findall(r'provider_calls_total\{outcome[=!~]+"([^"]+)"', text):
        assert set(matcher.split("|")) <= outcomes
    for matcher in re.findall(r'reason[=!~]+"([^"]+)"', text):
        assert set(matcher.split("|")) <= reasons


def test_every_metric_is_described_and_nothing_else_is() -> None:
    expected = [
        f"| `{found.name}` | {found.kind} | {', '.join(found.labels) or '-'} | {found.description} |"
        for found in instruments()
    ]
    described = re.findall(r"^\| `(?:dramaturg|gen_ai|grpc)_.*\|$", OPERATIONS, re.MULTILINE)
    assert described == expected


def test_every_alert_has_a_section_that_says_what_to_do() -> None:
    sections = re.findall(r"^### (Dramaturg\w+)\n\n(.+?)(?=^##|\Z)", OPERATIONS, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in sections] == [rule["alert"] for rule in rules()]
    for name, text in sections:
        assert "**Means.**" in text, name
        assert "**Do.**" in text, name


def test_alerts_say_how_bad_it_is_and_where() -> None:
    """A healthy installation beside one that is out hides nothing: whatever is summed is summed for each."""
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert "$labels.namespace" in rule["annotations"]["summary"]
        assert rule["annotations"]["runbook_url"] == f"docs/operate/operations.md#{rule['alert'].lower()}"
        groups = re.findall(r"\b(?:sum|max|group)\b(?: by \(([^)]*)\))?", rule["expr"])
        assert groups or rule["expr"].startswith("up"), rule["alert"]
        for group in groups:
            assert group.startswith("namespace, app_kubernetes_io_instance"), rule["alert"]
        assert "absent(" not in rule["expr"]


@pytest.fixture
def promtool(tmp_path: Path) -> Callable[..., None]:
    """Runs promtool with the alerts as the file ``rules.yaml``, and asserts that it finds nothing wrong."""
    program = shutil.which(ROOT / ".tools/prometheus/usr/bin/promtool") or shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed: run `make k8s-check`")
    spec = combined(("monitoring",)).one("PrometheusRule", "dramaturg")["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")

    def run(*arguments: str, content: Object) -> None:
        (tmp_path / "content.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
        command = [program, *arguments, "content.yaml"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def test_prometheus_reads_every_expression(promtool: Callable[..., None]) -> None:
    given = {"$__rate_interval": "5m", "$namespace": "x", "$service": "x"}
    records = []
    for number, (_, expression) in enumerate(expressions()):
        if not expression.startswith("label_values"):
            found = re.sub(r"\$\w+", lambda match: given[match[0]], expression)
            records.append({"record": f"record_{number}", "expr": found or "vector(0)"})
    promtool("check", "rules", content={"groups": [{"name": "all", "rules": records}]})


OUTAGE = """
rule_files: [rules.yaml]
tests:
  - interval: 1m
    input_series:
      - {series: 'up{namespace="production", KNOWN, OURS}', values: 1x10 _x30}
      - {series: 'up{namespace="staging", KNOWN, OURS}', values: 1x40}
      - {series: 'CALLS{namespace="production", KNOWN, METHOD, grpc_status="OK"}', values: 0+30x40}
      - {series: 'CALLS{namespace="production", KNOWN, METHOD, grpc_status="UNAVAILABLE"}', values: 0+30x40}
      - {series: 'CALLS{namespace="staging", KNOWN, METHOD, grpc_status="OK"}', values: 0+60x40}
    alert_rule_test:
      - eval_time: 40m
        alertname: DramaturgNoMetrics
        exp_alerts:
          - exp_labels: &of
              {namespace: production, app_kubernetes_io_instance: dramaturg, job: gateway, severity: critical}
            exp_annotations:
              summary: gateway  of production reports no metrics
              runbook_url: docs/operate/operations.md#dramaturgnometrics
      - eval_time: 40m
        alertname: DramaturgCallsFailing
        exp_alerts:
          - exp_labels: {<<: *of, severity: warning, grpc_method: /method}
            exp_annotations:
              summary: "production: 50% of the calls of /method fail"
              runbook_url: docs/operate/operations.md#dramaturgcallsfailing
"""
"""Production loses its gateway, and half of its calls fail; staging, of the same name, is well."""


def test_an_outage_beside_a_healthy_installation_is_told(promtool: Callable[..., None]) -> None:
    given = {
        "KNOWN": 'app_kubernetes_io_instance="dramaturg", job="gateway"',
        "OURS": 'app_kubernetes_io_part_of="dramaturg"',
        "METHOD": 'grpc_method="/method"',
        "CALLS": "grpc_server_call_duration_seconds_count",
    }
    text = re.sub("|".join(given), lambda match: given[match[0]], OUTAGE)
    promtool("test", "rules", content=yaml.safe_load(text))


@pytest.mark.parametrize("field", ["id", "title"])
def test_panels_are_told_apart(field: str) -> None:
    values = [panel[field] for panel in dashboard()["panels"]]
    assert len(values) == len(set(values))
