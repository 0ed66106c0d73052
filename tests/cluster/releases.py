"""The release before: the newest earlier tag, else the newest commit that lacks the newest tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.runs.store.tables import SCHEMA
from tests.k8s.rendered import ROOT


def check_out(folder: Path) -> Path:
    """The files of the release before, and their stubs. Skips the test where this clone has neither."""
    commit = _git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^").strip()
    commit = commit or _before_the_newest_revision()
    if not commit:
        pytest.skip("this clone lacks earlier tags, and the commits before the newest revision of the tables")
    _git("archive", f"--output={folder / 'previous.tar'}", commit)
    place = folder / "previous"
    place.mkdir()
    subprocess.run(["tar", "--extract", "--file=../previous.tar"], cwd=place, check=True)
    subprocess.run([sys.executable, "hatch_build.py"], cwd=place, check=True, capture_output=True)
    return place


def _before_the_newest_revision() -> str:
    """The newest commit without the newest revision of the tables, and with the one before; or nothing."""
    numbers = (int(SCHEMA.head), int(SCHEMA.head) - 1)
    files = [next(SCHEMA.revisions.glob(f"r{number:04}_*.py")).relative_to(ROOT) for number in numbers]
    commits = _git("rev-list", "HEAD").split()
    asked = "\n".join(f"{commit}:{file}" for commit in commits for file in files)
    there = [
        not line.endswith("missing") for line in _git("cat-file", "--batch-check", asked=asked).splitlines()
    ]
    found = zip(commits, there[::2], there[1::2], strict=True)
    return next((commit for commit, newest, before in found if before and not newest), "")


def _git(*arguments: str, asked: str = "") -> str:
    """What git says; nothing where it fails."""
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, input=asked, capture_output=True, text=True, check=False).stdout
