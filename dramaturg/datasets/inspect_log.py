"""Logs of Inspect: a ZIP archive (.eval) with a JSON document a sample, or one JSON document of all."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from dramaturg.datasets.errors import DatasetError, missing
from dramaturg.datasets.json_lines import MAX_VALUE_BYTES
from dramaturg.datasets.requests import parse_json

_ZSTANDARD = 93
"""The method of compression that zipfile does not have before Python 3.14 (APPNOTE.TXT, 4.4.5)."""
_LOCAL_HEADER = struct.Struct("<26xHH")
"""The lengths of the name and of the extra field, which end the header before the bytes of a member."""
_USED = ("id", "epoch", "input", "target", "messages", "output", "metadata", "attachments")


def read_eval_log(file: BinaryIO) -> Iterator[Mapping[str, Any]]:
    """The samples of an archive, each as a log of its own.

    Args:
        file: The file, open in binary, seekable.

    Raises:
        DatasetError: It is no such archive, has a sample of more than 64 MiB, or needs a package that is not
            installed.
    """
    try:
        with zipfile.ZipFile(file) as log:
            names = log.namelist()
            head = parse_json(
                _member(log, file, "header.json" if "header.json" in names else "_journal/start.json")
            )
            for name in names:
                if name.startswith("samples/") and name.endswith(".json"):
                    yield from samples_of({**head, "samples": [parse_json(_member(log, file, name))]})
    except (zipfile.BadZipFile, KeyError, ValueError, struct.error) as error:
        raise DatasetError(f"cannot be read as a log of Inspect: {error}") from error


def samples_of(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A log for each sample of a log, with the fields that are used; any other document as it is."""
    samples, head = document.get("samples"), document.get("eval")
    if not isinstance(samples, list) or not isinstance(head, dict):
        yield document
        return
    for sample in samples:
        kept = (
            {name: sample[name] for name in _USED if name in sample} if isinstance(sample, dict) else sample
        )
        yield {"eval": {name: head.get(name) for name in ("task", "model")}, "samples": [kept]}


def _member(log: zipfile.ZipFile, file: BinaryIO, name: str) -> bytes:
    info = log.getinfo(name)
    if info.file_size > MAX_VALUE_BYTES:
        raise ValueError(f"{name} has more than {MAX_VALUE_BYTES >> 20} MiB")
    if info.compress_type != _ZSTANDARD:
        return log.read(info)
    try:
        from pyarrow import ArrowException, Codec
    except ImportError as error:
        raise missing("a log of Inspect", "pyarrow") from error
    file.seek(info.header_offset)
    file.seek(sum(_LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))), 1)
    try:
        packed = file.read(info.compress_size)
        data: bytes = Codec("zstd").decompress(packed, decompressed_size=info.file_size, asbytes=True)
    except (ArrowException, OSError) as error:
        raise ValueError(f"{name}: {error}") from error
    if zlib.crc32(data) != info.CRC:
        raise ValueError(f"{name} is damaged")
    return data
