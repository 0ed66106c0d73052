"""Contracts have the options that code generators of other languages need."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROTOS = Path(__file__).resolve().parents[2] / "protos"
FILES = sorted(file.relative_to(PROTOS).as_posix() for file in PROTOS.rglob("*.proto"))


@pytest.mark.parametrize("file", FILES)
def test_the_options_follow_from_the_package(file: str) -> None:
    text = (PROTOS / file).read_text(encoding="utf-8")
    package = re.search(r"^package (dramaturg\.api\.(\w+)\.(v\d+));", text, re.MULTILINE)
    assert package is not None
    name, area, version = package.groups()
    options = dict(re.findall(r"^option (\w+) = (.+);", text, re.MULTILINE))
    assert options == {
        "csharp_namespace": f'"Dramaturg.Api.{area.capitalize()}.{version.upper()}"',
        "go_package": f'"dramaturg/api/{area}/{version};{area}{version}"',
        "java_multiple_files": "true",
        "java_package": f'"{name}"',
    }


def test_every_request_id_is_an_idempotency_key() -> None:
    fields = [
        (file, found)
        for file in FILES
        for found in re.findall(r"string request_id = .*", (PROTOS / file).read_text(encoding="utf-8"))
    ]
    assert [file for file, _ in fields] == [
        "dramaturg/api/evaluation/v1/label_service.proto",
        "dramaturg/api/evaluation/v1/run_service.proto",
    ]
