from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict

from dramaturg.api.common.v1.error_reason_pb2 import ERROR_REASON_FIELD_INVALID
from dramaturg.api.common.v1.error_status_pb2 import STATUS_CODE_INVALID_ARGUMENT
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.evaluation.v1.run_pb2 import (
    SAMPLE_STATE_FAILED,
    SAMPLE_STATE_SUCCEEDED,
    RunSample,
    SampleError,
)
from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.datasets.json_lines import LineError
from dramaturg.results.files import ResultFiles, read_results
from tests.dramaturg.report.samples import RESULTS, sample


def failed(index: int) -> RunSample:
    error = SampleError(
        code=STATUS_CODE_INVALID_ARGUMENT, reason=ERROR_REASON_FIELD_INVALID, message="no", field="task.goal"
    )
    return RunSample(
        index=index, sample_id=str(index), state=SAMPLE_STATE_FAILED, tags={"a": "b"}, error=error
    )


def ids(path: Path) -> list[int]:
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [int(line["task"]["id"] if "task" in line else line["task_id"]) for line in lines]


def test_results_and_errors_stand_in_the_order_of_the_rows(tmp_path: Path) -> None:
    with ResultFiles(tmp_path) as files:
        for index in range(6):
            if index % 3:
                result = ScriptsResult(task=Task(id=str(index), goal="茶"))
                files.add(RunSample(index=index, state=SAMPLE_STATE_SUCCEEDED, scripts=result), index + 1)
            else:
                files.add(failed(index), index + 1)
    assert ids(tmp_path / "results.jsonl") == [1, 2, 4, 5]
    assert ids(tmp_path / "errors.jsonl") == [0, 3]
    assert "茶" in (tmp_path / "results.jsonl").read_text(encoding="utf-8")


def test_an_error_says_which_row_and_why(tmp_path: Path) -> None:
    with ResultFiles(tmp_path) as files:
        files.add(failed(0), 3)
    assert json.loads((tmp_path / "errors.jsonl").read_text()) == {
        "index": 0,
        "line": 3,
        "task_id": "0",
        "tags": {"a": "b"},
        "code": "INVALID_ARGUMENT",
        "reason": "FIELD_INVALID",
        "message": "no",
        "violations": [{"field": "task.goal", "description": "no"}],
    }


def write_one_and_fail(files: ResultFiles) -> None:
    files.add(failed(1), 2)
    raise ValueError("bad")


def test_files_that_cannot_be_completed_leave_the_earlier_ones(tmp_path: Path) -> None:
    with ResultFiles(tmp_path) as files:
        files.add(failed(0), 1)
    with pytest.raises(ValueError, match="bad"), ResultFiles(tmp_path) as files:
        write_one_and_fail(files)
    assert ids(tmp_path / "errors.jsonl") == [0]
    assert {path.name for path in tmp_path.iterdir()} == {"results.jsonl", "errors.jsonl"}


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
