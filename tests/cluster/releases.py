"""The release that is upgraded from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.cluster import Release
from tests.k8s.rendered import ROOT, Rendering, kustomize

PREVIOUS = "DRAMATURG_TEST_PREVIOUS"
"""Names a checkout of the previous release, with its stubs."""
ANCESTOR = "6f528f97ce2e57ba51c3083dea601a1751094f41"
"""An earlier commit with the tables of this one, for the time before the first tag."""


def previous(folder: Path) -> Release:
    """The checkout that DRAMATURG_TEST_PREVIOUS names, else the newest tag before this commit, else ANCESTOR.

    Skips the test where this clone has none of them.

    Args:
        folder: Where a checkout is made.
    """
    checkout = Path(given) if (given := os.environ.get(PREVIOUS)) else check_out(_commit(), folder)
    return Release(Rendering(str(checkout), kustomize(checkout / "k8s/overlays/production")), checkout)


def previous_tag() -> str:
    """The newest tag before this commit; empty where there is none."""
    return _git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^").stdout.strip()


def _commit() -> str:
    commit = previous_tag() or ANCESTOR
    if _git("cat-file", "-e", f"{commit}^{{commit}}").returncode != 0:
        pytest.skip(f"this clone has no earlier tag and no commit {commit}: name a checkout in {PREVIOUS}")
    return commit


def check_out(commit: str, folder: Path) -> Path:
    """The files of a commit, and their stubs."""
    archive = folder / "previous.tar"
    _git("archive", f"--output={archive}", commit).check_returncode()
    place = folder / "previous"
    place.mkdir()
    subprocess.run(["tar", "--extract", f"--file={archive}", f"--directory={place}"], check=True)
    subprocess.run([sys.executable, "hatch_build.py"], cwd=place, check=True, capture_output=True)
    return place


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"git is not on PATH: name a checkout of the previous release in {PREVIOUS}")
