from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
from gateway.launch.commands import find_app, settings_type
settings_type(find_app({service!r}))
print(*sys.modules)
"""


@pytest.mark.parametrize("service", ["critic", "embedding", "generation", "graph", "pair-judge"])
def test_a_service_does_not_import_the_gateway_or_its_neighbours(service: str) -> None:
    command = [sys.executable, "-c", CODE.format(service=service)]
    imported = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    found = {name for name in imported if name.startswith(("gateway.", "services."))}
    services = {".".join(name.split(".")[:2]) for name in found if name.startswith("services.")}
    assert len(services) == 1, services
    assert {name for name in found if name.startswith("gateway.")} == {
        "gateway.launch",
        "gateway.launch.commands",
    }
    assert not {"dbos", "sqlalchemy"} & {*imported} or service == "generation"
