"""Reads datasets in a process of its own with bounded memory and time.

A dataset may need much more memory than its size, in ways that only its reader finds. The process ends before
its machine runs out of memory, and the gateway continues.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dramaturg.api.evaluation.v1.run_pb2 import (
    DATASET_FORMAT_JSONL,
    DATASET_FORMAT_PARQUET,
    DATASET_FORMAT_UNSPECIFIED,
    SAMPLE_STATE_FAILED,
    DatasetManifest,
    RunSample,
    RunSpec,
)
from dramaturg.datasets import DatasetError
from dramaturg.service.errors import ServiceError
from gateway.processes.process import Ask, LimitedProcess, ProcessLimits
from gateway.runs.dataset_access import DatasetAccess
from gateway.runs.datasets import SampleReader
from gateway.runs.records import NewSample
from gateway.runs.store.sample_rows import SampleRow, decode_rows, encode_rows

SMALL_ROWS = 1000
"""The most lines, and so rows, that are read in the gateway itself."""
SMALL_CONTENT_BYTES = 256 << 10
"""The most bytes of JSON Lines and CSV that are read in the gateway itself."""
SMALL_LINES_BYTES = 2 << 20
"""The same for JSON Lines of which no line exceeds ``SMALL_CONTENT_BYTES``."""
_MODULES = ("pyarrow.compute", "pyarrow.parquet")
_GZIP = b"\x1f\x8b"
_HEAD = struct.Struct("!cI")
_SAMPLES, _MANIFEST, _ERROR = b"S", b"M", b"E"

Encode = Callable[[SampleReader], Iterator[bytes]]
"""Writes the samples of a dataset, in the process."""


class IsolatedSampleReader:
    """The samples of a run's dataset, as ``SampleReader`` has them, read in another process.

    Args:
        spec: The spec of the run.
        content: The rows of the request. Ignored if the dataset has a URI.
        access: The datasets that may be read, and how much of each.
        limits: The limits of the process.
        is_stopped: Is called every half second; reading ends once it returns True.

    Raises:
        DatasetError: From the iteration: the dataset cannot be opened or read to its end.
        ProcessDiedError: From the iteration: the process died.
        StoppedError: From the iteration.
    """

    def __init__(
        self,
        spec: RunSpec,
        content: bytes,
        access: DatasetAccess,
        limits: ProcessLimits,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._spec = spec
        self._content = content
        self._access = access
        self._limits = limits
        self._is_stopped = is_stopped
        self._manifest = DatasetManifest()

    @property
    def manifest(self) -> DatasetManifest:
        """The manifest of the dataset, complete after the iteration."""
        return self._manifest

    def __iter__(self) -> Iterator[NewSample]:
        """The samples; invalid rows are failed samples."""
        for head, request in self._pieces(_sample_pieces):
            yield _sample(RunSample.FromString(head), request)

    def row_groups(self) -> Iterator[Sequence[SampleRow]]:
        """The samples as rows of the store, made in the process. Raises as the iteration does."""
        for _, rows in self._pieces(_row_pieces):
            yield decode_rows(rows)

    def _pieces(self, encode: Encode) -> Iterator[tuple[bytes, bytes]]:
        given = self._spec.SerializeToString(), self._content, self._access, encode
        limits = replace(self._limits, modules=_MODULES)
        with LimitedProcess(limits, self._is_stopped) as process:
            for piece in process.pieces(_read, *given):
                kind, size = _HEAD.unpack_from(piece)
                first, second = piece[_HEAD.size : _HEAD.size + size], piece[_HEAD.size + size :]
                if kind == _MANIFEST:
                    self._manifest = DatasetManifest.FromString(first)
                elif kind == _ERROR:
                    raise DatasetError(first.decode())
                else:
                    yield first, second


def sample_reader(
    spec: RunSpec,
    content: bytes,
    access: DatasetAccess,
    limits: ProcessLimits,
    is_stopped: Callable[[], bool] = lambda: False,
) -> SampleReader | IsolatedSampleReader:
    """The reader of a run's dataset: in this process where it is small, in another one otherwise.

    The arguments are those of ``IsolatedSampleReader``.
    """
    if _is_small(spec, content):
        return SampleReader(spec, content, access)
    return IsolatedSampleReader(spec, content, access, limits, is_stopped)


def _is_small(spec: RunSpec, content: bytes) -> bool:
    """Whether a dataset takes little memory and time, regardless of its rows."""
    dataset = spec.dataset
    if dataset.WhichOneof("source") == "uri" or dataset.format == DATASET_FORMAT_PARQUET:
        return False
    if content.startswith(_GZIP):
        return False
    lines = max(content.count(b"\n"), content.count(b"\r"))
    if min(lines, dataset.row_limit or lines) > SMALL_ROWS:
        return False
    if len(content) <= SMALL_CONTENT_BYTES:
        return True
    # A line is decoded on its own; a CSV row may have many lines.
    return (
        dataset.format in (DATASET_FORMAT_UNSPECIFIED, DATASET_FORMAT_JSONL)
        and len(content) <= SMALL_LINES_BYTES
        and max(map(len, content.split(b"\n"))) <= SMALL_CONTENT_BYTES
    )


def _read(ask: Ask, spec: bytes, content: bytes, access: DatasetAccess, encode: Encode) -> Iterator[bytes]:
    """The task of the process: the samples of a dataset, then its manifest or an error."""
    del ask
    reader = SampleReader(RunSpec.FromString(spec), content, access)
    try:
        yield from encode(reader)
        yield _piece(_MANIFEST, reader.manifest.SerializeToString())
    except DatasetError as error:
        yield _piece(_ERROR, str(error).encode())
    except ServiceError as error:
        yield _piece(_ERROR, f"cannot be read: {error.message}".encode())
    except MemoryError:
        yield _piece(_ERROR, b"needs more memory than this gateway gives a dataset")


def _sample_pieces(samples: SampleReader) -> Iterator[bytes]:
    for sample in samples:
        failure = sample.failure
        head = RunSample(index=sample.index, line=sample.line, sample_id=sample.sample_id, tags=sample.tags)
        yield _piece(_SAMPLES, (failure or head).SerializeToString(), sample.request)


def _sample(head: RunSample, request: bytes) -> NewSample:
    return NewSample(
        index=head.index,
        line=head.line,
        sample_id=head.sample_id,
        tags=dict(head.tags),
        request=request,
        failure=head if head.state == SAMPLE_STATE_FAILED else None,
    )


def _row_pieces(samples: SampleReader) -> Iterator[bytes]:
    for rows in samples.row_groups():
        yield _piece(_SAMPLES, b"", encode_rows(rows))


def _piece(kind: bytes, first: bytes, second: bytes = b"") -> bytes:
    return b"".join((_HEAD.pack(kind, len(first)), first, second))
