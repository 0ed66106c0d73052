"""The package's public names, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dramaturg


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys; before = {*sys.modules}; import dramaturg; print(*{*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if name.startswith("dramaturg")} == {"dramaturg"}
    assert not {"grpc", "google.protobuf", "pydantic", "typer", "rich"} & {*done.stdout.split()}


@pytest.mark.parametrize("name", dramaturg.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(dramaturg, name).__name__ == name
    assert name in dir(dramaturg)
    assert name in (dramaturg.__doc__ or "")


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        getattr(dramaturg, "Nothing")  # noqa: B009
