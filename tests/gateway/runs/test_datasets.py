from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.common.v1.error_status_pb2 import STATUS_CODE_INVALID_ARGUMENT
from dramaturg.api.common.v1.script_pb2 import Candidate, Task
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, RunSpec
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.datasets import DatasetError, Format
from dramaturg.service.errors import ServiceError
from gateway.runs.datasets import DatasetAccess, SampleReader, check_dataset, dataset_format
from gateway.runs.records import NewSample
from tests.support.datasets import written

REQUESTS = [
    EvaluateScriptsRequest(
        task=Task(id=f"t{number}", goal="Make tea"),
        candidates=[Candidate(id="a", text="1. Boil.")],
        tags={"level": "easy"},
    )
    for number in range(3)
]


def spec(dataset: Dataset, **fields: Any) -> RunSpec:
    made = RunSpec(dataset=dataset, **fields)
    made.scripts.SetInParent()
    return made


def samples(reader: SampleReader) -> list[NewSample]:
    return list(reader)


def refused(access: DatasetAccess, address: str) -> str:
    with pytest.raises(ServiceError) as caught:
        check_dataset(Dataset(uri=address), access)
    (violation,) = caught.value.violations
    assert violation.field == "spec.dataset.uri"
    return violation.description


@pytest.mark.parametrize("form", Format)
def test_rows_become_samples(form: Format, tmp_path: Path) -> None:
    content = written(REQUESTS, form)
    file = tmp_path / f"rows.{form}"
    file.write_bytes(content)
    reader = SampleReader(spec(Dataset(uri=f"file://{file}")), b"", DatasetAccess([tmp_path]))
    read = samples(reader)
    assert [EvaluateScriptsRequest.FromString(sample.request) for sample in read] == REQUESTS
    assert [(sample.index, sample.sample_id, sample.tags) for sample in read] == [
        (number, f"t{number}", {"level": "easy"}) for number in range(3)
    ]
    assert reader.manifest.uri == f"file://{file}"
    assert reader.manifest.format == getattr(run_pb2, f"DATASET_FORMAT_{form.upper()}")
    assert reader.manifest.sha256 == hashlib.sha256(content).hexdigest()
    assert reader.manifest.row_count == 3


def test_rows_that_the_request_brought_are_read() -> None:
    dataset = Dataset(format=run_pb2.DATASET_FORMAT_CSV, row_limit=2)
    dataset.content = b"kept elsewhere"
    reader = SampleReader(spec(dataset), written(REQUESTS, Format.CSV), DatasetAccess())
    assert len(samples(reader)) == 2
    assert reader.manifest.row_count == 2


def test_rows_that_are_no_requests_are_failed_samples() -> None:
    content = written(REQUESTS[:1], Format.JSONL) + b"{\n" + b'{"task": {}, "candidates": []}\n'
    reader = SampleReader(spec(Dataset(content=b"x")), content, DatasetAccess())
    good, broken, empty = samples(reader)
    assert good.failure is None
    assert broken.failure is not None
    assert broken.failure.state == run_pb2.SAMPLE_STATE_FAILED
    assert broken.failure.error.code == STATUS_CODE_INVALID_ARGUMENT
    assert (broken.index, broken.line, broken.failure.index) == (1, 2, 1)
    assert empty.failure is not None
    assert empty.failure.error.field == "task.goal"
    assert "more)" in empty.failure.error.message
    assert reader.manifest.invalid_row_count == 2
    assert [error.line for error in reader.manifest.row_errors] == [2, 3]


def test_models_under_test_write_the_candidates_of_scripts() -> None:
    bare = EvaluateScriptsRequest(task=Task(goal="Make tea"))
    content = written([bare], Format.JSONL)
    (refused_row,) = samples(SampleReader(spec(Dataset(content=b"x")), content, DatasetAccess()))
    assert refused_row.failure is not None
    (accepted,) = samples(SampleReader(spec(Dataset(content=b"x"), models=["m"]), content, DatasetAccess()))
    assert accepted.failure is None


def test_local_files_are_read_only_below_the_folders(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "rows.jsonl").write_bytes(written(REQUESTS, Format.JSONL))
    (inside / "link.jsonl").symlink_to(outside / "rows.jsonl")
    access = DatasetAccess([inside])
    for address in (
        str(outside / "rows.jsonl"),
        str(outside / "none.jsonl"),  # what is not there is refused in the same words
        f"{inside}/../outside/rows.jsonl",
        f"file://{inside}/%2e%2e/outside/rows.jsonl",
        str(inside / "link.jsonl"),
        f"{inside}x/rows.jsonl",
    ):
        assert refused(access, address) == "is outside of the folders that this gateway reads datasets from"
    assert refused(access, "rows.jsonl") == "is not an absolute path"
    assert refused(access, str(inside / "a\0b.jsonl")).startswith("is not a valid path")
    assert "is outside of" in refused(DatasetAccess(), str(inside / "rows.jsonl"))


def test_a_link_within_the_folders_is_followed(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(written(REQUESTS, Format.JSONL))
    (tmp_path / "latest.jsonl").symlink_to("rows.jsonl")
    reader = SampleReader(spec(Dataset(uri=str(tmp_path / "latest.jsonl"))), b"", DatasetAccess([tmp_path]))
    assert len(samples(reader)) == 3


def test_pipes_and_folders_are_no_datasets(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    for name in ("pipe.jsonl", "folder.jsonl"):
        reader = SampleReader(spec(Dataset(uri=str(tmp_path / name))), b"", DatasetAccess([tmp_path]))
        with pytest.raises((ServiceError, DatasetError), match=r"regular file|directory"):
            samples(reader)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    reader = SampleReader(spec(Dataset(uri=str(tmp_path / "a.jsonl"))), b"", DatasetAccess([tmp_path]))
    with pytest.raises(DatasetError, match="cannot be read: No such file"):
        samples(reader)


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/rows.jsonl",
        "local:///etc/passwd",
        "simplecache::file:///etc/passwd",
        "s3://a::file:///etc/passwd.jsonl",
        "file://elsewhere/rows.jsonl",
        "s3://",
    ],
)
def test_only_object_stores_are_read_besides_local_files(address: str) -> None:
    assert refused(DatasetAccess(), address).startswith("has a scheme that this gateway does not read")


def test_stores_that_are_configured_are_read() -> None:
    pytest.importorskip("fsspec").filesystem("memory").pipe(
        "/gateway-test/rows.parquet", written(REQUESTS, Format.PARQUET)
    )
    access = DatasetAccess(schemes=["memory"])
    reader = SampleReader(spec(Dataset(uri="memory://gateway-test/rows.parquet")), b"", access)
    assert len(samples(reader)) == 3
    check_dataset(Dataset(uri="s3://bucket/rows.csv"), DatasetAccess())


def test_a_format_is_told_by_the_name_or_named() -> None:
    assert dataset_format(Dataset(content=b"x")) is Format.JSONL
    assert dataset_format(Dataset(uri="s3://b/rows.csv.gz")) is Format.CSV
    assert dataset_format(Dataset(uri="s3://b/rows", format=run_pb2.DATASET_FORMAT_PARQUET)) is Format.PARQUET
    with pytest.raises(ServiceError) as caught:
        dataset_format(Dataset(uri="s3://b/rows.xlsx"))
    assert [violation.field for violation in caught.value.violations] == ["spec.dataset.format"]
    with pytest.raises(ServiceError):
        check_dataset(Dataset(), DatasetAccess())


def test_a_broken_dataset_keeps_what_was_read_in_the_manifest() -> None:
    reader = SampleReader(
        spec(Dataset(content=b"x", format=run_pb2.DATASET_FORMAT_CSV)), b"goal\nA\n", DatasetAccess()
    )
    with pytest.raises(DatasetError, match=r"nearest are task\.goal"):
        samples(reader)
    assert reader.manifest.byte_count == 7
