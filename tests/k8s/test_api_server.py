"""The overlays as an API server takes them, where one is named.

No cluster is touched unless DRAMATURG_TEST_KUBE_CONTEXT names a context of the kubeconfig. Nothing is changed
there: each overlay is applied as a dry run of the server, with its admission. The namespace ``dramaturg`` and
the custom resource definitions that the overlay uses must be there.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.k8s.rendered import K8S, OVERLAYS

CONTEXT = "DRAMATURG_TEST_KUBE_CONTEXT"


@pytest.fixture
def context() -> str:
    """The context of the kubeconfig that may be asked."""
    named = os.environ.get(CONTEXT, "")
    if not named:
        pytest.skip(f"no API server: {CONTEXT} names no context of a kubeconfig")
    assert shutil.which("kubectl"), f"{CONTEXT} is set, and there is no kubectl on PATH"
    return named


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_server_would_take_the_overlay(context: str, overlay: str) -> None:
    command = ["kubectl", "--context", context, "apply", "--server-side", "--dry-run=server"]
    done = subprocess.run(
        [*command, "-k", str(K8S / "overlays" / overlay)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("serverside-applied") == len(done.stdout.splitlines()) > 0
