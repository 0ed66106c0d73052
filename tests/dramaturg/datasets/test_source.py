from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.datasets import DatasetError, DatasetReader, Format, is_remote, local_path, open_source
from dramaturg.datasets.source import Meter


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("rows.jsonl", "rows.jsonl"),
        ("/data/rows.jsonl", "/data/rows.jsonl"),
        ("file:///data/a%20b.jsonl", "/data/a b.jsonl"),
        ("file://localhost/data/rows.jsonl", "/data/rows.jsonl"),
        ("file://elsewhere/rows.jsonl", None),
        ("s3://bucket/rows.jsonl", None),
    ],
)
def test_local_files_are_told_from_addresses(address: str, path: str | None) -> None:
    assert local_path(address) == (Path(path) if path else None)
    assert is_remote(address) == (path is None)


def test_local_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "a b.jsonl").write_bytes(b"rows")
    for address in (str(tmp_path / "a b.jsonl"), f"file://{tmp_path}/a%20b.jsonl"):
        with open_source(address) as file:
            assert file.read() == b"rows"


@pytest.mark.parametrize("seekable", [False, True])
def test_addresses_that_fsspec_knows_are_opened(*, seekable: bool) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.pipe("/source-test/rows*.jsonl", b"rows")  # a star is no pattern
    with open_source("memory://source-test/rows*.jsonl", seekable=seekable) as file:
        assert file.read() == b"rows"
        if seekable:
            file.seek(0)
            assert file.read() == b"rows"


def test_what_cannot_be_opened_is_told() -> None:
    with pytest.raises(OSError, match="nowhere"), open_source("memory://nowhere/rows.jsonl"):
        pass
    with pytest.raises(DatasetError, match="has an address that cannot be opened"), open_source("xyz://a/b"):
        pass


def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    expected = r"at s3://, which needs fsspec.*dramaturg\[datasets\]"
    with pytest.raises(DatasetError, match=expected), open_source("s3://bucket/rows.jsonl"):
        pass


class Dribbling(io.BytesIO):
    """A file that gives a few bytes at a time, as networks do."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(7, size) if size is not None and size >= 0 else 7)


def test_the_hash_does_not_depend_on_how_the_bytes_come() -> None:
    content = b'{"task": {"goal": "A"}, "candidates": [{"id": "a", "text": "1."}]}\n' * 50_000
    hashes = set()
    for file in (io.BytesIO(content), Dribbling(content)):
        reader = DatasetReader(file, EvaluateScriptsRequest, Format.JSONL, row_limit=100)
        assert len(list(reader)) == 100
        hashes.add((reader.manifest.sha256, reader.manifest.byte_count))
    assert len(hashes) == 1
    assert next(iter(hashes))[1] < len(content)


def test_a_meter_counts_what_is_read() -> None:
    meter = Meter(io.BytesIO(b"abc"))
    assert meter.read(2) == b"ab"
    assert meter.byte_count == 2
