from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest, ScriptsResult
from dramaturg.datasets import Row
from dramaturg.datasets.json_lines import LineError
from dramaturg.results.files import ResultWriter, read_results
from dramaturg.service.errors import ServiceError, Violation
from tests.dramaturg.report.samples import RESULTS, sample

ERROR = ServiceError(
    grpc.StatusCode.INVALID_ARGUMENT,
    error_reason_pb2.ERROR_REASON_FIELD_INVALID,
    "no",
    violations=[Violation("task.goal", "is bad")],
)


def row(index: int) -> Row[EvaluateScriptsRequest]:
    return Row(index + 1, EvaluateScriptsRequest(task=Task(id=str(index)), tags={"a": "b"}))


def ids(path: Path) -> list[int]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [int(line["task"]["id"] if "task" in line else line["task_id"]) for line in lines]


@pytest.mark.parametrize("seed", range(5))
async def test_results_stand_in_the_order_of_the_rows_however_they_come(tmp_path: Path, seed: int) -> None:
    order = list(range(30))
    random.Random(seed).shuffle(order)
    with ResultWriter(tmp_path, window=30) as writer:
        for index in order:
            await writer.admit()
            if index % 3:
                writer.add_result(index, ScriptsResult(task=Task(id=str(index), goal="茶")))
            else:
                writer.add_error(index, row(index), ERROR)
    assert ids(writer.results_path) == [index for index in range(30) if index % 3]
    assert ids(writer.errors_path) == [index for index in range(30) if not index % 3]
    assert "茶" in writer.results_path.read_text(encoding="utf-8")


async def test_an_error_says_which_row_and_why(tmp_path: Path) -> None:
    with ResultWriter(tmp_path, window=1) as writer:
        writer.add_error(0, row(0), ERROR)
        # Written at once, not at the end: a process that is killed leaves it.
        assert json.loads(writer.errors_path.read_text()) == {
            "index": 0,
            "line": 1,
            "task_id": "0",
            "tags": {"a": "b"},
            "code": "INVALID_ARGUMENT",
            "reason": "FIELD_INVALID",
            "message": "no",
            "violations": [{"field": "task.goal", "description": "is bad"}],
        }


async def test_a_slow_row_holds_up_only_so_many(tmp_path: Path) -> None:
    with ResultWriter(tmp_path, window=2) as writer:
        await writer.admit()
        await writer.admit()
        waiting = asyncio.ensure_future(writer.admit())
        writer.add_result(1, ScriptsResult())
        await asyncio.sleep(0)
        assert not waiting.done()
        writer.add_result(0, ScriptsResult())
        await asyncio.wait_for(waiting, 5)


async def test_what_waits_is_written_at_the_end_in_order(tmp_path: Path) -> None:
    with ResultWriter(tmp_path, window=9) as writer:
        for index in (5, 3, 8):
            writer.add_result(index, ScriptsResult(task=Task(id=str(index))))
        assert not writer.results_path.read_text()
    assert ids(writer.results_path) == [3, 5, 8]


@pytest.mark.parametrize("kind", sorted(RESULTS))
def test_the_kind_of_a_result_is_recognised_by_its_members(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text(json.dumps(MessageToDict(getattr(sample(kind), kind))), encoding="utf-8")
    (read,) = read_results(file)
    assert read.WhichOneof("result") == kind
    assert getattr(read, kind) == getattr(sample(kind), kind)


@pytest.mark.parametrize(
    ("line", "message"),
    [("{", "is not JSON"), ("[]", "is not a JSON object"), ("{}", "is not a result")],
)
def test_an_invalid_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text(f"\n{line}\n", encoding="utf-8")
    with pytest.raises(LineError, match=message) as caught:
        list(read_results(file))
    assert "some.jsonl: line 2:" in str(caught.value)
