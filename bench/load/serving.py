"""Runs what the services call as a process of its own, so that it is told apart from what they take."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@contextmanager
def serving(module: str, *arguments: str, given: str = "") -> Iterator[str]:
    """Runs a module that serves; yields the address that it prints in its first line.

    Args:
        module: The module.
        arguments: Its arguments.
        given: What it reads from its standard input.
    """
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(given)
            process.stdin.close()
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
