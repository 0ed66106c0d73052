"""The Dockerfile and the locks: linted, pinned, and in step with what pyproject.toml asks for."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.k8s.rendered import ROOT, combined, folder

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = ROOT / "requirements"
RESOLVER = ROOT / ".tools" / "release" / "bin" / "uv"
SOURCES = ("rouge-score",)
"""Packages without wheels. Their code is Python alone."""
EXTRAS = {
    "platform.txt": ["cli", "platform", "datasets"],
    "embeddings.txt": ["cli", "platform", "datasets", "embeddings"],
}


def pins(lock: str) -> dict[str, set[str]]:
    """The versions that a lock pins, by normalised name; several where markers choose."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(
        r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", (LOCKS / lock).read_text("utf-8"), re.MULTILINE
    ):
        found.setdefault(normalised(name), set()).add(version)
    return found


def normalised(name: str) -> str:
    """A project's name as PEP 503 normalises it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_linter_finds_nothing() -> None:
    program = shutil.which(Path(sys.executable).with_name("hadolint")) or shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([program, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_images_run_as_the_user_of_the_manifests_and_start_without_a_shell() -> None:
    (user,) = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    assert user == "65532:65532"
    assert all(pod.spec["securityContext"]["runAsUser"] == 65532 for pod in folder("base").pods())
    for instruction in re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", DOCKERFILE, re.MULTILINE):
        assert instruction.startswith("["), f"{instruction} needs a shell"


def test_what_the_images_copy_is_in_the_context() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE):
        for source in sources.split():
            assert source.partition("/")[0] in kept, f".dockerignore leaves out {source}"
            assert (ROOT / source).exists(), source


def test_the_manifests_images_are_the_dockerfiles_targets() -> None:
    targets = set(re.findall(r"^FROM runtime AS (\S+)$", DOCKERFILE, re.MULTILINE))
    renderings = (folder("base"), folder("single"), combined(("embeddings", "edges", "migration")))
    containers = [one for rendering in renderings for pod in rendering.pods() for one in pod.containers]
    named = {one["image"].partition(":")[0] for one in containers}
    assert targets == {"dramaturg", "torch"}
    assert named == {"dramaturg", "dramaturg-torch"}


def test_the_manifests_version_is_the_projects() -> None:
    versions = {pod.container["image"].partition(":")[2] for pod in folder("base").pods()}
    versions |= set(re.findall(r"^ARG VERSION=(\S+)$", DOCKERFILE, re.MULTILINE))
    assert versions == {PROJECT["project"]["version"]}


@pytest.mark.parametrize("lock", [*sorted(EXTRAS), "build.txt"])
def test_locks_hold_what_the_project_asks_for(lock: str) -> None:
    """A lock that fails here is out of date: `make lock`."""
    extras = PROJECT["project"]["optional-dependencies"]
    lines = [
        line for extra in EXTRAS.get(lock, []) for line in extras[extra] if not line.startswith("dramaturg[")
    ]
    wanted = (
        PROJECT["build-system"]["requires"] if lock == "build.txt" else PROJECT["project"]["dependencies"]
    )
    pinned = pins(lock)
    for requirement in map(Requirement, [*wanted, *lines]):
        versions = pinned.get(normalised(requirement.name), set())
        assert versions, f"{lock} lacks {requirement}"
        wrong = [version for version in versions if not requirement.specifier.contains(version)]
        assert not wrong, f"{lock}: {requirement}, {versions}"


@pytest.mark.parametrize("lock", [*sorted(EXTRAS), "build.txt", "embedding-model.txt"])
def test_every_pin_has_hashes_and_the_image_installs_nothing_else(lock: str) -> None:
    text = (LOCKS / lock).read_text(encoding="utf-8")
    for block in re.findall(r"^[A-Za-z0-9._-]+==(?:[^\\\n]|\\\n)*", text, re.MULTILINE):
        assert "--hash=sha256:" in block, block
    assert re.search(rf"--require-hashes .*-r requirements/{lock}", DOCKERFILE)
    installs = [line for line in DOCKERFILE.splitlines() if re.search(r"pip (?:wheel|install) ", line)]
    downloads = [line for line in installs if "--no-index" not in line]
    assert all("--require-hashes" in line or line.endswith("-w own . \\") for line in downloads)


def test_torch_is_locked_for_the_image_that_needs_it_alone() -> None:
    assert "torch" in pins("embeddings.txt")
    assert "torch" not in pins("platform.txt")
    shared = pins("platform.txt")
    assert {name: versions for name, versions in pins("embeddings.txt").items() if name in shared} == shared


def test_the_dockerfile_names_no_platform() -> None:
    assert not re.search(r"amd64|x86_64|arm64|aarch64|--platform", DOCKERFILE)


@pytest.mark.parametrize("base", ["", "docker.io/library/python:3.13@sha256:00"])
def test_a_base_image_without_a_digest_is_told(base: str) -> None:
    """`make images`, with a program that prints its arguments in place of Docker."""
    command = ["make", "images", "BUILD=echo", f"PYTHON_IMAGE={base}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ("not for a release" in done.stderr) == (not base)
    assert done.stdout.count(f"--build-arg PYTHON_IMAGE={base}") == (2 if base else 0)


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["aarch64-manylinux_2_28", "x86_64-manylinux_2_28"])
@pytest.mark.parametrize("lock", [*sorted(EXTRAS), "build.txt"])
def test_locked_packages_have_wheels_for_both_platforms(lock: str, platform: str) -> None:
    """An image is built without a compiler. The registry is asked, and nothing is downloaded."""
    if not RESOLVER.exists():
        pytest.skip("uv is not installed: run `make k8s-check`")
    (version,) = re.findall(r"^ARG PYTHON_IMAGE=\S+python:(\d+\.\d+)-", DOCKERFILE, re.MULTILINE)
    command = [str(RESOLVER), "pip", "compile", "--no-config", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += [argument for name in SOURCES for argument in ("--no-binary", name)]
    command += ["--python-platform", platform, "--python-version", version, str(LOCKS / lock)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_both_images_have_every_large_package_that_a_service_needs() -> None:
    for target, packages in {
        "dramaturg": {"pyarrow", "scipy", "weights", "application", "dramaturg"},
        # The environment with torch has SciPy, on which sentence-transformers depends.
        "torch": {"pyarrow", "weights", "application", "dramaturg"},
    }.items():
        (stage,) = re.findall(rf"^FROM runtime AS {target}\n((?:.+\n?)+)", DOCKERFILE, re.MULTILINE)
        assert set(re.findall(r"/opt/(\w+) /opt/\1", stage)) == packages


@pytest.mark.parametrize("name", sorted(pod.name for pod in folder("base").pods()))
def test_a_service_needs_no_torch(name: str) -> None:
    """Every module of the service is imported without the package that its image lacks."""
    program = f"""
import importlib, importlib.abc, pkgutil, sys
class Lacking(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Lacking())
from importlib.metadata import entry_points
from dramaturg.service.installed import GROUP, find_app
app = find_app({name!r})
(entry,) = entry_points(group=GROUP, name={name!r})
package = importlib.import_module(entry.module.rpartition(".")[0])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not module.name.endswith((".commands", "__main__")):
        importlib.import_module(module.name)
app()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
