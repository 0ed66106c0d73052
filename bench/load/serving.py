"""Runs servers that the services call as processes, so that their processor time is not the services'."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@contextmanager
def serving(module: str, *arguments: str) -> Iterator[str]:
    """Runs a module that serves; yields the address that it prints in its first line.

    Args:
        module: The module.
        arguments: Its arguments.
    """
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
