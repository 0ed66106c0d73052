"""The process that reads datasets: bounded memory, rows and bytes, whatever a dataset expands to."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, RunSpec
from dramaturg.datasets import DatasetError, DatasetLimitError, Format
from dramaturg.service.threads import StoppedError
from gateway.processes.process import OutOfTimeError, ProcessDiedError, ProcessLimits
from gateway.runs.dataset_process import (
    SMALL_CONTENT_BYTES,
    IsolatedSampleReader,
    first_valid,
    sample_reader,
)
from gateway.runs.datasets import DatasetAccess, SampleReader
from gateway.runs.records import NewSample
from tests.support.bombs import GOOD_LINE, blank_bomb, delta_bomb, dictionary_bomb, empty_rows, parquet_bytes
from tests.support.datasets import written
from tests.support.engines import script_rows
from tests.support.processes import worker_processes

LIMITS = ProcessLimits(256 << 20)


def spec(form: Format = Format.JSONL, **fields: Any) -> RunSpec:
    value = getattr(run_pb2, f"DATASET_FORMAT_{form.upper()}")
    made = RunSpec(dataset=Dataset(content=b"x", format=value, **fields))
    made.scripts.SetInParent()
    return made


def isolated(
    content: bytes,
    form: Format = Format.JSONL,
    access: DatasetAccess | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> IsolatedSampleReader:
    return IsolatedSampleReader(spec(form), content, access or DatasetAccess(), LIMITS, is_stopped)


@pytest.mark.parametrize("form", Format)
def test_samples_are_those_that_are_read_here(form: Format) -> None:
    content = written(script_rows(30), form) + (b"no row\n" if form is Format.JSONL else b"")
    here, there = SampleReader(spec(form), content, DatasetAccess()), isolated(content, form)
    assert list(there) == list(here)
    assert there.manifest == here.manifest


def test_a_file_is_read_where_the_gateway_may_read(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(GOOD_LINE * 3)
    given = RunSpec(dataset=Dataset(uri=str(file)))
    given.scripts.SetInParent()
    assert len(list(IsolatedSampleReader(given, b"", DatasetAccess([tmp_path]), LIMITS))) == 3
    with pytest.raises(DatasetError, match="outside of the folders"):
        list(IsolatedSampleReader(given, b"", DatasetAccess(), LIMITS))


def test_rows_of_a_dictionary_that_expands_are_invalid_and_take_no_memory() -> None:
    content = dictionary_bomb()
    assert len(content) < 2000
    samples = list(isolated(content, Format.PARQUET))
    assert len(samples) == 200
    assert all(sample.failure is not None for sample in samples)
    assert samples[0].failure is not None
    assert "60 MiB when it is decoded; at most 16 MiB" in samples[0].failure.error.message


def test_a_file_that_expands_without_a_dictionary_fails_the_dataset() -> None:
    with pytest.raises(DatasetError, match=r"memory|malloc"):
        list(isolated(delta_bomb(), Format.PARQUET))


def test_the_decoded_bytes_of_a_dataset_are_bounded() -> None:
    content = dictionary_bomb(rows=1000, references=1)
    access = DatasetAccess(max_bytes=50 << 20)
    read: list[NewSample] = []
    with pytest.raises(DatasetError, match="has more than 52,428,800 bytes when it is unpacked"):
        read.extend(isolated(content, Format.PARQUET, access))
    assert len(read) < 50
    with pytest.raises(DatasetError, match="when it is unpacked"):
        list(isolated(blank_bomb(100), Format.JSONL, access))


def test_a_dataset_of_too_many_rows_is_refused_before_the_first() -> None:
    access = DatasetAccess(max_rows=100_000)
    for content, form in (
        (empty_rows(300_000), Format.JSONL),
        (parquet_bytes({"task.goal": [None] * 300_000}), Format.PARQUET),
        (b"task.goal\n" + b"x\n" * 100_001, Format.CSV),
    ):
        samples = iter(isolated(content, form, access))
        with pytest.raises(DatasetError, match="has more than 100,000 rows"):
            next(samples)


@pytest.mark.parametrize(
    ("form", "row"),
    [(Format.JSONL, GOOD_LINE), (Format.CSV, b"task.goal\nMake tea\n")],
)
@pytest.mark.parametrize("row_limit", [0, 2])
def test_the_blank_lines_of_a_dataset_are_bounded_like_its_rows(
    form: Format, row: bytes, row_limit: int
) -> None:
    access = DatasetAccess(max_rows=10)

    def read(content: bytes) -> list[NewSample]:
        return list(SampleReader(spec(form, row_limit=row_limit), content, access))

    assert len(read(b"\n" * 4 + row + b" \n" * (form is Format.JSONL) + b"\r\n" * 5)) == 1
    for blank in (b"\n" * 11 + row, row + b"\n" * 11):
        with pytest.raises(DatasetLimitError, match="has more than 10 blank lines"):
            read(blank)
    with pytest.raises(DatasetLimitError, match="has more than 10 blank lines"):
        list(isolated(row + b"\n" * 11, form, access))


def test_blank_lines_within_a_cell_of_csv_are_text() -> None:
    content = b'task.goal\n"Make' + b"\n" * 20 + b'tea"\n'
    (sample,) = SampleReader(spec(Format.CSV), content, DatasetAccess(max_rows=10))
    assert sample.line == 2


def test_a_dataset_that_takes_too_much_processor_time_ends() -> None:
    limits = ProcessLimits(256 << 20, cpu_seconds=1)
    reader = IsolatedSampleReader(spec(), b"{}\n" * 5_000_000, DatasetAccess(), limits)
    with pytest.raises(OutOfTimeError, match="it took more than 1 s of processor time"):
        list(first_valid(reader, 1))


@pytest.mark.parametrize("form", Format)
def test_the_first_valid_samples_are_given_and_all_are_counted(form: Format) -> None:
    content = written(script_rows(30), form) + (b"no row\n" if form is Format.JSONL else b"")
    for reader in (SampleReader(spec(form), content, DatasetAccess()), isolated(content, form)):
        assert [sample.index for sample in first_valid(reader, 3)] == [0, 1, 2]
        assert reader.manifest.row_count == 30
        assert reader.manifest.invalid_row_count == (form is Format.JSONL)


def test_a_line_of_many_small_values_fails_alone() -> None:
    wide = b'{"task": {"constraints": [' + b"{}," * (5 << 20) + b"{}]}}\n"
    first, second = isolated(wide + GOOD_LINE)
    assert first.failure is not None
    assert second.failure is None


def test_the_death_of_the_process_is_reported() -> None:
    reader = isolated(GOOD_LINE * 200_000)
    samples = iter(reader)
    next(samples)
    (child,) = worker_processes()
    os.kill(child, signal.SIGKILL)
    with pytest.raises(ProcessDiedError, match="signal 9"):
        list(samples)
    assert worker_processes() == []


def test_the_process_ends_with_its_reader_and_when_it_is_stopped() -> None:
    samples = iter(isolated(GOOD_LINE * 200_000))
    next(samples)
    samples.close()  # type: ignore[attr-defined] # a generator
    assert worker_processes() == []
    stopped = threading.Event()
    samples = iter(isolated(GOOD_LINE * 200_000, is_stopped=stopped.is_set))
    next(samples)
    stopped.set()
    (child,) = worker_processes()
    os.kill(child, signal.SIGSTOP)
    with pytest.raises(StoppedError):
        list(samples)
    assert worker_processes() == []


def test_the_process_ends_when_its_gateway_dies() -> None:
    program = (
        "import os, sys\n"
        "from tests.gateway.runs.test_dataset_process import *\n"
        "samples = iter(isolated(GOOD_LINE * 200_000))\n"
        "next(samples)\n"
        "print(worker_processes()[0], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=False)
    child = int(done.stdout)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{child}").exists():
        state = Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0]
        if state == "Z":  # its new parent may never wait for it
            break
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)


def test_nothing_that_a_library_prints_becomes_a_sample() -> None:
    row = json.loads(GOOD_LINE)
    row["task"]["id"] = "\x00S\xff"
    (sample,) = isolated(json.dumps(row).encode())
    assert sample.sample_id == "\x00S\xff"


@pytest.mark.parametrize(
    ("content", "form", "row_limit", "here"),
    [
        (b"{}\n" * 1000, Format.JSONL, 0, True),
        (b"{}\n" * 1001, Format.JSONL, 0, False),
        (GOOD_LINE * 20_000, Format.JSONL, 200, True),
        (GOOD_LINE * 30_000, Format.JSONL, 200, False),
        (b"x" * SMALL_CONTENT_BYTES + b"\n" + b"x" * 10, Format.JSONL, 0, True),
        (b"\n" + b"x" * (SMALL_CONTENT_BYTES + 1) + b"\n", Format.JSONL, 0, False),
        (b"\n" * (1 << 20), Format.JSONL, 200, True),
        (b"a\r" * 1001, Format.CSV, 0, False),
        ((b'"' + b"x" * 1000 + b'"\n') * 1000, Format.JSONL, 0, True),
        (b'"' + b"x" * 300_000 + b'"\n', Format.CSV, 0, False),
        ((b'"' + b"x" * 2100 + b'"\n') * 1000, Format.JSONL, 0, False),
        (b'"' + b"x" * 300_000 + b'"\n', Format.JSONL, 0, False),
        (b"a\n" * 1000, Format.CSV, 0, True),
        (b"PAR1", Format.PARQUET, 0, False),
        (gzip.compress(GOOD_LINE), Format.JSONL, 0, False),
    ],
    ids=range(15),
)
def test_small_datasets_are_read_in_the_gateway(
    content: bytes, form: Format, row_limit: int, here: bool
) -> None:
    reader = sample_reader(spec(form, row_limit=row_limit), content, DatasetAccess(), LIMITS)
    assert isinstance(reader, SampleReader) == here


def test_the_first_rows_of_a_large_dataset_are_read_in_the_gateway() -> None:
    reader = sample_reader(spec(row_limit=20), b"{}\n" * 50_000, DatasetAccess(), LIMITS)
    assert isinstance(reader, SampleReader)
