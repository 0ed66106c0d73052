"""Generates the protobuf and gRPC stubs from ``protos/`` into ``dramaturg/api``.

Hatchling runs it for every build and editable install; ``python hatch_build.py`` does the same by hand.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand, where hatchling is not needed
    BuildHookInterface = object  # type: ignore[assignment,misc]

PROTO_ROOT = "protos"
OUTPUT = Path("dramaturg") / "api"


def generate(root: Path) -> list[str]:
    """Generates all stubs afresh; returns their paths relative to ``root``."""
    from grpc_tools import protoc

    output = root / OUTPUT
    shutil.rmtree(output, ignore_errors=True)
    protos = sorted(str(path.relative_to(root / PROTO_ROOT)) for path in (root / PROTO_ROOT).rglob("*.proto"))
    # protoc finds its plugins on PATH; in an isolated build they stand beside the interpreter's scripts.
    scripts = [str(Path(sys.executable).parent), *(str(Path(p).parent / "bin") for p in sys.path if p)]
    os.environ["PATH"] = os.pathsep.join([*scripts, os.environ.get("PATH", "")])
    arguments = [
        "protoc",
        f"-I{root / PROTO_ROOT}",
        f"-I{files('grpc_tools') / '_proto'}",
        f"--python_out={root}",
        f"--grpc_python_out={root}",
        f"--mypy_out={root}",
        f"--mypy_grpc_out={root}",
        *protos,
    ]
    if protoc.main(arguments) != 0:
        raise RuntimeError("protoc failed; its message stands above")
    for folder in {output, *(path.parent for path in output.rglob("*_pb2.py"))}:
        while folder != root / "dramaturg":
            (folder / "__init__.py").write_text('"""Generated from protos/; do not edit."""\n')
            folder = folder.parent
    return [str(path.relative_to(root)) for path in output.rglob("*") if path.is_file()]


class StubsHook(BuildHookInterface):  # type: ignore[type-arg]
    """The build hook that hatchling calls."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the generated stubs to what is built."""
        del version
        generate(Path(self.root))
        # They are ignored by git, which hatchling honours, so they must be named.
        build_data["artifacts"].append(f"{OUTPUT.as_posix()}/**")


if __name__ == "__main__":
    generate(Path(__file__).resolve().parent)
