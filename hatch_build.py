"""Generates the protobuf and gRPC stubs from ``protos/`` into ``dramaturg/api``.

Hatchling runs it for every build and editable install; ``python hatch_build.py`` does the same by hand.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROTO_ROOT = "protos"
OUTPUT = Path("dramaturg") / "api"
PACKAGE = b'"""Generated from protos/; do not edit."""\n'


def generate(root: Path) -> list[str]:
    """Generates all stubs afresh; returns their paths relative to ``root``.

    Files that come out as they were are left untouched, so that a running process or an editor does not
    see its imports vanish.
    """
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        run_protoc(root, fresh)
        wanted = {path.relative_to(fresh): path.read_bytes() for path in fresh.rglob("*.py*")}
    packages = {parent for path in wanted for parent in path.parents if OUTPUT in (parent, *parent.parents)}
    wanted |= {package / "__init__.py": PACKAGE for package in packages}
    for stale in {path for path in (root / OUTPUT).rglob("*.py*") if path.relative_to(root) not in wanted}:
        stale.unlink()
    for path, content in wanted.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_file() or target.read_bytes() != content:
            target.write_bytes(content)
    return [path.as_posix() for path in wanted]


def run_protoc(root: Path, output: Path) -> None:
    """Runs protoc with its Python, gRPC and type-stub plugins over every file under ``protos/``."""
    from grpc_tools import protoc

    protos = sorted(str(path.relative_to(root / PROTO_ROOT)) for path in (root / PROTO_ROOT).rglob("*.proto"))
    # protoc finds its plugins on PATH; in an isolated build they stand beside the interpreter's packages.
    packages = [Path(entry) for entry in sys.path if entry.endswith("-packages")]
    scripts = [str(Path(sys.executable).parent), *(str(package.parents[2] / "bin") for package in packages)]
    os.environ["PATH"] = os.pathsep.join([*scripts, os.environ.get("PATH", "")])
    plugins = ("python", "grpc_python", "mypy", "mypy_grpc")
    includes = [f"-I{root / PROTO_ROOT}", f"-I{files('grpc_tools') / '_proto'}"]
    if protoc.main(["protoc", *includes, *(f"--{plugin}_out={output}" for plugin in plugins), *protos]) != 0:
        raise RuntimeError("protoc failed; its message stands above")


class StubsHook(BuildHookInterface[Any]):
    """The build hook that hatchling calls."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the generated stubs to what is built."""
        del version
        generate(Path(self.root))
        # They are ignored by git, which hatchling honours, so they must be named.
        build_data["artifacts"].append(f"{OUTPUT.as_posix()}/**")


if __name__ == "__main__":
    generate(Path(__file__).resolve().parent)
