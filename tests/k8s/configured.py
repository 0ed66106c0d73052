"""Reads what a pod is configured with, by the settings classes of the service that runs in it."""

from __future__ import annotations

import importlib
import pkgutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

import dramaturg.service
import gateway
import services
from dramaturg.service.installed import find_app, service_names, settings_type
from dramaturg.service.settings import CONFIG_VARIABLE, Settings
from gateway.judges.files import combine
from gateway.settings import GatewaySettings, JudgeTables
from tests.k8s.rendered import Pod, Rendering, at


def variables() -> dict[str, type[Settings]]:
    """Every environment variable that some part of the platform reads, with its settings class."""
    for package in (gateway, services, dramaturg.service):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith(".settings"):
                importlib.import_module(module.name)
    for name in service_names():
        settings_type(find_app(name))
    found = {}
    for kind in kinds(Settings):
        for field, info in kind.model_fields.items():
            found[kind.variable(field)] = kind
            if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
                nested = (f"{kind.variable(field)}__{name.upper()}" for name in info.annotation.model_fields)
                found |= dict.fromkeys(nested, kind)
    return found


def kinds(base: type[Settings]) -> Iterator[type[Settings]]:
    """All settings that have a section."""
    for kind in base.__subclasses__():
        if hasattr(kind, "section"):
            yield kind
        yield from kinds(kind)


def write_configuration(rendering: Rendering, pod: Pod, place: Path, patch: pytest.MonkeyPatch) -> None:
    """Gives this process what a pod gets: its variables, and its configuration as a file."""
    file = place / f"{pod.name}.toml"
    file.write_text(rendering.configuration(pod), encoding="utf-8")
    for name, value in pod.environment().items():
        patch.setenv(name, value)
    patch.setenv(CONFIG_VARIABLE, str(file))


def load_settings(rendering: Rendering, pod: Pod, place: Path) -> Settings | None:
    """The settings of the service in a pod, or None where it is none of ours (a judge of another team).

    Raises:
        pydantic.ValidationError: The configuration has a value or a key that the service does not take.
    """
    return next(iter(load_all(rendering, pod, place)), None)


def load_all(rendering: Rendering, pod: Pod, place: Path) -> list[Settings]:
    """The settings of all services in a pod."""
    names = pod.container.get("args") or (["gateway"] if "command" in pod.container else [])
    with pytest.MonkeyPatch.context() as patch:
        write_configuration(rendering, pod, place, patch)
        return [settings_type(find_app(name))() for name in names]


def load_judges(rendering: Rendering, place: Path) -> JudgeTables:
    """The judges that the gateway reads from its settings and from the ConfigMap that is mounted into it."""
    pod = rendering.pod("gateway")
    settings = load_settings(rendering, pod, place)
    assert isinstance(settings, GatewaySettings)
    (name,) = [
        one["name"] for one in pod.container["volumeMounts"] if one["mountPath"] == str(settings.judges_dir)
    ]
    tables: JudgeTables = settings
    files = rendering.one("ConfigMap", at(pod.spec, f"volumes {name} configMap name"))["data"]
    for _, text in sorted(files.items()):
        tables = combine(tables, JudgeTables.model_validate(tomllib.loads(text)))
    return tables
