"""Datasets that expand, in every format: the memory of the gateway does not grow with what they hold."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, RunSpec
from dramaturg.datasets import DatasetError, Format, Row
from gateway.processes.process import ProcessDiedError, ProcessLimits
from gateway.runs.dataset_access import DatasetAccess
from gateway.runs.dataset_process import IsolatedSampleReader
from tests.hostile.values import TEXTS
from tests.support.bombs import GOOD_LINE, blank_bomb, dictionary_bomb, empty_rows, parquet_bytes
from tests.support.datasets import read
from tests.support.fleet import report

ACCESS = DatasetAccess(max_rows=100_000, max_bytes=256 << 20)
MOST_GROWTH_MB = 100

BOMBS: dict[str, tuple[Format, Callable[[], bytes]]] = {
    "a dictionary": (Format.PARQUET, dictionary_bomb),
    "millions of rows": (Format.PARQUET, lambda: parquet_bytes({"task.goal": [None] * 2_000_000})),
    "a list of nulls": (
        Format.PARQUET,
        lambda: parquet_bytes({"task.goal": ["A"], "task.constraints": [["x"] * 3_000_000]}),
    ),
    "empty rows": (Format.JSONL, lambda: empty_rows(2_000_000)),
    "blank lines": (Format.JSONL, lambda: blank_bomb(150)),
    "a line without end": (Format.JSONL, lambda: gzip.compress(b"x" * (150 << 20), 9)),
    "many small values": (
        Format.JSONL,
        lambda: b'{"task": {"constraints": [' + b"[]," * (5 << 20) + b"0]}}\n",
    ),
    "deep": (Format.JSONL, lambda: b'{"task":' * 2_000_000),
    "an open quote": (Format.CSV, lambda: b'task.goal\n"' + b"x\n" * (2 << 20)),
    "many cells": (Format.CSV, lambda: b"task.goal\n" + b"," * (8 << 20)),
    "many columns": (Format.CSV, lambda: b",".join(b"tags.%d" % n for n in range(300_000)) + b"\n"),
}


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_memory_does_not_grow_with_a_dataset(name: str) -> None:
    form, make = BOMBS[name]
    content = make()
    value = getattr(run_pb2, f"DATASET_FORMAT_{form.upper()}")
    spec = RunSpec(dataset=Dataset(content=b"x", format=value))
    spec.scripts.SetInParent()
    before = resident_mb()
    try:
        count = sum(1 for _ in IsolatedSampleReader(spec, content, ACCESS, ProcessLimits(256 << 20)))
        said = f"{count} rows"
    except (DatasetError, ProcessDiedError) as error:
        said = str(error)[:80]
    growth = resident_mb() - before
    report(dataset=name, content_bytes=len(content), growth_mb=growth, said=said)
    assert growth < MOST_GROWTH_MB
    assert len(GOOD_LINE) < len(content)


def content_of(form: Format, goals: list[str]) -> bytes:
    """A dataset with one row for each goal."""
    if form is Format.JSONL:
        rows = [{"task": {"goal": goal}, "candidates": [{"id": "a", "text": "1."}]} for goal in goals]
        return "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    if form is Format.CSV:
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerow(["task.goal", "candidates.0.id", "candidates.0.text"])
        writer.writerows([goal, "a", "1."] for goal in goals)
        return file.getvalue().encode()
    candidates = [[{"id": "a", "text": "1."}]] * len(goals)
    return parquet_bytes({"task.goal": goals, "candidates": candidates})


@pytest.mark.parametrize("form", Format)
@pytest.mark.parametrize("label", TEXTS)
def test_a_hostile_text_is_read_as_it_is_or_fails_its_row_alone(form: Format, label: str) -> None:
    text = TEXTS[label]
    rows, manifest = read(content_of(form, [text, "Make tea"]), form)
    assert manifest.row_count + manifest.invalid_row_count == len(rows) == 2
    assert isinstance(rows[1], Row)
    assert rows[1].request.task.goal == "Make tea"
    if isinstance(rows[0], Row):
        assert rows[0].request.task.goal == text
