"""The wheels: their files and requirements, and what works with the packages of an install without extras."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from email.message import Message
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
BASE = {
    "googleapis-common-protos",
    "grpcio",
    "grpcio-health-checking",
    "grpcio-reflection",
    "grpcio-status",
    "opentelemetry-api",
    "protobuf",
    "pydantic-settings",
}
CLI = {"jinja2", "rich", "typer"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this checkout."""
    return built(ROOT, tmp_path_factory.mktemp("dist"))


def built(project: Path, folder: Path) -> zipfile.ZipFile:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    return zipfile.ZipFile(file)


def tracked(folder: str) -> set[str]:
    """The files of a folder that git lists or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}


def names(wheel: zipfile.ZipFile) -> set[str]:
    return set(wheel.namelist())


def described(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in names(wheel) if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(wheel.read(name).decode())


def required(wheel: zipfile.ZipFile, extra: str = "") -> set[str]:
    """The packages that an install requires, without those that they require."""
    requirements = [Requirement(line) for line in described(wheel).get_all("Requires-Dist", [])]
    wanted = [one for one in requirements if one.marker is None or one.marker.evaluate({"extra": extra})]
    return {canonicalize_name(one.name) for one in wanted}


def stubs() -> Iterator[str]:
    """The files that are generated from the contracts."""
    folders = set()
    for proto in (ROOT / "protos").rglob("*.proto"):
        name = proto.relative_to(ROOT / "protos").with_suffix("")
        folders |= {parent for parent in name.parents if parent.parts[:2] == ("dramaturg", "api")}
        for ending in ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi"):
            yield f"{name.as_posix()}{ending}"
    yield from (f"{folder.as_posix()}/__init__.py" for folder in folders)


def test_the_wheel_has_the_package_and_the_stubs_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    found = {name for name in names(wheel) if ".dist-info/" not in name}
    assert found == {*tracked("dramaturg"), *stubs()}
    for name in (
        "client.py",
        "judge/contracts.py",
        "conformance/__init__.py",
        "testing/__init__.py",
        "py.typed",
    ):
        assert f"dramaturg/{name}" in found
    assert {name.rpartition(".dist-info/")[2] for name in names(wheel) - found} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
        "licenses/NOTICE",
    }


def test_the_command_line_is_an_extra(wheel: zipfile.ZipFile) -> None:
    assert required(wheel) == BASE
    assert required(wheel, "cli") == BASE | CLI


def installed(packages: set[str], folder: Path) -> Path:
    """Links the files of packages, and of those that they require, into a folder as of an install."""
    seen: set[str] = set()
    todo = [(name, frozenset[str]()) for name in packages]
    while todo:
        name, extras = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        distribution = metadata.distribution(name)
        for line in distribution.requires or []:
            one = Requirement(line)
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
                todo.append((canonicalize_name(one.name), frozenset(one.extras)))
        for file in distribution.files or []:
            target = folder / file
            if ".." not in file.parts and "__pycache__" not in file.parts and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(Path(str(file.locate())).resolve())
    return folder


def run(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with the packages of a folder and none besides."""
    environment = {"PYTHONPATH": str(site), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-S", *arguments]
    return subprocess.run(command, cwd=site, env=environment, capture_output=True, text=True, check=False)


def site_of(wheel: zipfile.ZipFile, folder: Path, extra: str = "") -> Path:
    installed(required(wheel, extra), folder)
    wheel.extractall(folder)
    return folder


def test_client_judges_and_fakes_work_without_extras(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    site = site_of(wheel, tmp_path)
    done = run(site, str(ROOT / ".ci" / "wheel_check.py"))
    assert done.returncode == 0, done.stderr
    done = run(site, "-m", "dramaturg", "--version")
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'dramaturg[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_harnesses_cost_those_nothing_who_do_not_use_them(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    code = "import sys, dramaturg\nfrom dramaturg import evaluate_texts\nprint(*sys.modules)"
    imported = run(site_of(wheel, tmp_path), "-c", code).stdout.split()
    assert "dramaturg" in imported
    assert not [name for name in imported if name.startswith(("dramaturg.integrations", "pytest", "mlflow"))]
    sizes = {one.filename: one.compress_size for one in wheel.infolist()}
    own = sum(size for name, size in sizes.items() if name.startswith("dramaturg/integrations/"))
    assert 0 < own < 0.02 * sum(sizes.values())


def test_the_extra_adds_the_command_line(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    site = site_of(wheel, tmp_path, "cli")
    assert run(site, "-m", "dramaturg", "--version").stdout.strip().endswith(described(wheel)["Version"])
    done = run(site, "-m", "dramaturg", "--help")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\beval\b", done.stdout)
    done = run(site, "-m", "dramaturg", "up")
    assert done.returncode == 2
    assert "clone" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def research_wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of dramaturg-research."""
    return built(ROOT / "research", tmp_path_factory.mktemp("research"))


def test_the_wheel_of_research_has_its_package_alone(research_wheel: zipfile.ZipFile) -> None:
    found = {name for name in names(research_wheel) if ".dist-info/" not in name}
    assert found == {name.removeprefix("research/") for name in tracked("research/dramaturg_research")}
    assert {name.rpartition(".dist-info/")[2] for name in names(research_wheel) - found} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "licenses/LICENSE",
    }


def test_research_requires_the_command_line_of_its_own_version(
    wheel: zipfile.ZipFile, research_wheel: zipfile.ZipFile
) -> None:
    version = described(wheel)["Version"]
    assert described(research_wheel)["Version"] == version
    lines = described(research_wheel).get_all("Requires-Dist", [])
    assert [one for one in map(Requirement, lines) if one.marker is None] == [
        Requirement(f"dramaturg[cli]=={version}")
    ]


def test_its_wheel_adds_the_commands_of_research(
    wheel: zipfile.ZipFile, research_wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    site = site_of(wheel, tmp_path, "cli")
    absent = run(site, "-m", "dramaturg", "research", "reproduce", "--help")
    assert (
        "pip install dramaturg-research"
        in run(site, "-m", "dramaturg", "research", "reproduce", "choice75").stderr
    )
    research_wheel.extractall(site)
    for command in sorted(research_commands(research_wheel)):
        done = run(site, "-m", "dramaturg", "research", *command.split("."), "--help")
        assert done.returncode == 0, done.stderr
    assert run(site, "-m", "dramaturg", "research", "reproduce", "--help").stdout != absent.stdout


def test_training_needs_the_services_too(
    wheel: zipfile.ZipFile, research_wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    site = site_of(wheel, tmp_path, "cli")
    research_wheel.extractall(site)
    done = run(site, "-m", "dramaturg", "research", "graphs", "train", "scripts.json", "-o", "model")
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs the services" in done.stderr
    assert "Traceback" not in done.stderr


def research_commands(wheel: zipfile.ZipFile) -> set[str]:
    (name,) = [name for name in names(wheel) if name.endswith(".dist-info/entry_points.txt")]
    groups = ConfigParser()
    groups.read_string(wheel.read(name).decode())
    return set(groups["dramaturg.commands.research"])
