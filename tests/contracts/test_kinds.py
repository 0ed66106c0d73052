"""A kind of evaluation is one package: few files outside of it name kinds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from dramaturg.api.evaluation.v1 import evaluation_service_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSample, RunSpec
from dramaturg.kinds import KINDS as RESULT_KINDS
from gateway.evaluations.kinds import KINDS, RUN_KINDS

ROOT = Path(__file__).resolve().parents[2]

SHARED = {
    "protos/dramaturg/api/evaluation/v1/evaluation_service.proto",
    "protos/dramaturg/api/evaluation/v1/run.proto",
    "protos/dramaturg/api/evaluation/v1/summary.proto",
    "dramaturg/kinds/__init__.py",
    "dramaturg/client.py",
}
"""The files of several kinds that a new kind changes, as CONTRIBUTING.md lists them."""

OTHER_METHODS = {"Summarize", "EstimateRun"}
"""The method of EvaluationService that is of no kind."""


def messages_of_kinds() -> set[str]:
    """The names of the requests and results of all kinds."""
    results = RunSample.DESCRIPTOR.oneofs_by_name["result"].fields
    options = RunSpec.DESCRIPTOR.oneofs_by_name["evaluation"].fields
    return {
        *(kind.request_type.DESCRIPTOR.name for kind in KINDS),
        *(field.message_type.name for field in (*results, *options) if field.message_type),
    }


def modules() -> Iterator[Path]:
    for top in ("dramaturg", "gateway", "services"):
        yield from (path for path in sorted((ROOT / top).rglob("*.py")) if "api" not in path.parts)


def words(path: Path) -> set[str]:
    """The names, attributes and strings of a module."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def test_only_shared_files_list_the_kinds() -> None:
    messages = messages_of_kinds()
    methods = {kind.method for kind in KINDS}
    members = [{name, kind.results.name} for name, kind in RUN_KINDS.items()]
    found = set()
    for path in modules():
        named = words(path)
        # A kind has a request, a result and options. Names of members are also plain words: five are a list,
        # but not in services, which know no kinds.
        listed = 0 if "services" in path.parts else sum(not named.isdisjoint(names) for names in members)
        if len(named & messages) > 4 or len(named & methods) > 2 or listed > 4:
            found.add(path.relative_to(ROOT).as_posix())
    assert found <= SHARED


def test_contributing_lists_the_shared_files() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert len(SHARED) <= 5
    for path in SHARED:
        assert (ROOT / path).is_file()
        assert f"`{path}`" in text


def test_the_registries_have_the_kinds_of_the_contract() -> None:
    service = evaluation_service_pb2.DESCRIPTOR.services_by_name["EvaluationService"]
    assert {kind.method for kind in KINDS} == set(service.methods_by_name) - OTHER_METHODS
    for kind in KINDS:
        assert service.methods_by_name[kind.method].input_type is kind.request_type.DESCRIPTOR
    assert set(RUN_KINDS) == {field.name for field in RunSpec.DESCRIPTOR.oneofs_by_name["evaluation"].fields}
    results = {field.name for field in RunSample.DESCRIPTOR.oneofs_by_name["result"].fields}
    assert {kind.results.name for kind in RUN_KINDS.values()} == results
    assert {shown.name: shown.results for shown in RESULT_KINDS} == {
        name: kind.results for name, kind in RUN_KINDS.items()
    }


def test_a_kind_has_a_package_and_its_modules() -> None:
    for kind in KINDS:
        package, _, module = type(kind).__module__.rpartition(".")
        assert module == "kind"
        assert package.rpartition(".")[0] == "gateway.evaluations"
    for shown in RESULT_KINDS:
        for module in ("__init__", "view", "tables", "command"):
            assert (ROOT / "dramaturg" / "kinds" / shown.name / f"{module}.py").is_file()
