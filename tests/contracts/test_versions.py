"""All that a release publishes has one version."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_all_packages_have_one_version() -> None:
    research = tomllib.loads(read("research/pyproject.toml"))["project"]
    chart = yaml.safe_load(read("k8s/chart/Chart.yaml"))
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert research["version"] == version
    assert f"dramaturg[cli]=={version}" in research["dependencies"]
    assert json.loads(read("sdk/typescript/package.json"))["version"] == version
    assert (chart["version"], str(chart["appVersion"])) == (version, version)
