"""The examples in the docstrings of ``dramaturg`` run."""

from __future__ import annotations

import ast
import doctest
import inspect
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, RunSpec
from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from dramaturg.api.judging.v1 import judge_service_pb2, judge_service_pb2_grpc
from dramaturg.api.judging.v1.judge_service_pb2_grpc import JudgeServiceStub
from dramaturg.client import DramaturgClient
from dramaturg.judge.client import judge_request
from dramaturg.judge.verdicts import failed
from dramaturg.service.channel import open_channel
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import FakeGeneration, FakeJudge, in_thread, serve
from dramaturg.testing.servers import RegisteredJudge, serve_gateway
from tests.support.engines import lines, script_rows
from tests.support.engines import scripts_spec as spec_of_scripts
from tests.support.gateway import agents, scripts_request
from tests.support.generation import request as generate_request
from tests.support.judges import TASK, candidate

PACKAGE = Path(__file__).resolve().parents[2] / "dramaturg"
ADDRESS = "localhost:50051"
REQUESTS: dict[str, Any] = {
    "testing/generation.py:FakeGeneration": generate_request(),
    "testing/servers.py:FakeJudge": judge_request(TASK, [candidate("Heat it.")]),
}
"""The requests of examples that send no EvaluateScriptsRequest."""


def examples() -> Iterator[tuple[str, str]]:
    """The name of each object with an example, and the code of the example."""
    for file in sorted(PACKAGE.rglob("*.py")):
        if PACKAGE / "api" in file.parents or ">>> " not in (text := file.read_text(encoding="utf-8")):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            found = doctest.DocTestParser().get_examples(ast.get_docstring(node) or "")
            if found:
                name = f"{file.relative_to(PACKAGE)}:{getattr(node, 'name', '')}"
                yield name, "".join(example.source for example in found)


EXAMPLES = dict(examples())


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 9


class MyCritic(judge_service_pb2_grpc.JudgeServiceServicer):
    """The servicer that an example names."""


@asynccontextmanager
async def gateway(tmp_path: Path) -> AsyncIterator[str]:
    judges = [RegisteredJudge(fake.role, fake.contract(), fake.name) for fake in agents()]
    store = {"enabled": True, "url": f"sqlite:///{tmp_path}/runs.sqlite3"}
    async with serve_gateway(*judges, runs=store) as server:
        yield server.target


@pytest.mark.parametrize("name", EXAMPLES)
async def test_an_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of_scripts(dataset=Dataset(content=lines(script_rows(2))))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.jsonl").write_bytes(spec.dataset.content)
    names: dict[str, Any] = {
        **{one.__name__: one for one in (Contract, DramaturgClient, FakeGeneration, FakeJudge, MyCritic)},
        **{one.__name__: one for one in (Server, ServerSettings, failed, in_thread, open_channel, serve)},
        "GenerationServiceStub": GenerationServiceStub,
        "JudgeServiceStub": JudgeServiceStub,
        "Dataset": Dataset,
        "RunSpec": RunSpec,
        "grpc": grpc,
        "judge_service_pb2": judge_service_pb2,
        "judge_service_pb2_grpc": judge_service_pb2_grpc,
        "contract": FakeJudge().contract(),
        "error": ServiceError(
            grpc.StatusCode.UNAVAILABLE, error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE, "no"
        ),
        "request": REQUESTS.get(name, scripts_request(1)),
        "spec": spec,
    }
    code = EXAMPLES[name]
    if ADDRESS not in code:
        await run(code, names)
        return
    async with gateway(tmp_path) as target:
        await run(code.replace(ADDRESS, target), names)


async def run(code: str, names: dict[str, Any]) -> None:
    # Examples use `async with` outside of a function.
    source = f"async def example():\n{textwrap.indent(code, '    ')}"
    exec(compile(source, "<example>", "exec"), names)
    result = names["example"]()
    assert inspect.isawaitable(result)
    await result
