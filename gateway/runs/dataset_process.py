"""Reads datasets in a process of its own with bounded memory and time.

A dataset may need much more memory than its size, in ways that only its reader finds. The process ends before
its machine runs out of memory, and the gateway continues.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from dramaturg.api.evaluation.v1.run_pb2 import (
    DATASET_FORMAT_JSONL,
    DATASET_FORMAT_PARQUET,
    DATASET_FORMAT_UNSPECIFIED,
    SAMPLE_STATE_FAILED,
    DatasetManifest,
    RunSample,
    RunSpec,
)
from dramaturg.datasets import DatasetError, DatasetLimitError
from dramaturg.service.errors import ServiceError
from dramaturg.service.threads import TenantThreads
from gateway.processes.process import Ask, LimitedProcess, ProcessLimits
from gateway.runs.dataset_access import DatasetAccess
from gateway.runs.datasets import SampleReader
from gateway.runs.records import NewSample

SMALL_ROWS = 1000
"""The most lines, and so rows, that are read in the gateway itself."""
SMALL_CONTENT_BYTES = 256 << 10
"""The most bytes of JSON Lines and CSV that are read in the gateway itself."""
SMALL_LINES_BYTES = 2 << 20
"""The same for JSON Lines of which no line exceeds ``SMALL_CONTENT_BYTES``."""
_MODULES = ("pyarrow.compute", "pyarrow.parquet")
_GZIP = b"\x1f\x8b"
_HEAD = struct.Struct("!I")
_SAMPLES, _MANIFEST, _ERROR, _LIMIT = b"S", b"M", b"E", b"L"

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
        DatasetLimitError: From the iteration: it has more than a limit allows.
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
        for piece in self.pieces(_encode_samples):
            yield _decode_sample(piece)

    def pieces(self, encode: Encode) -> Iterator[bytes]:
        """The samples as the process writes them. Raises as the iteration does.

        Args:
            encode: Writes them. A function of a module.
        """
        given = self._spec.SerializeToString(), self._content, self._access, encode
        limits = replace(self._limits, modules=_MODULES)
        with LimitedProcess(limits, self._is_stopped) as process:
            for piece in process.pieces(_read, *given):
                kind, content = piece[:1], piece[1:]
                if kind == _MANIFEST:
                    self._manifest = DatasetManifest.FromString(content)
                elif kind in (_ERROR, _LIMIT):
                    raise (DatasetError if kind == _ERROR else DatasetLimitError)(content.decode())
                else:
                    yield content


class DatasetThreads:
    """Threads that read datasets. Those of small ones are apart, so that none waits for a large one."""

    def __init__(self) -> None:
        self._small, self._large = TenantThreads(), TenantThreads()

    def of(self, spec: RunSpec, content: bytes) -> TenantThreads:
        """The threads of a dataset."""
        return self._small if is_small(spec, content) else self._large


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
    if is_small(spec, content):
        return SampleReader(spec, content, access)
    return IsolatedSampleReader(spec, content, access, limits, is_stopped)


def first_valid(reader: SampleReader | IsolatedSampleReader, most: int) -> Iterator[NewSample]:
    """The first valid samples of a dataset, which is read to its end. Raises as the reader does."""
    if isinstance(reader, SampleReader):
        return _first_valid(most, reader)
    return map(_decode_sample, reader.pieces(partial(_encode_first_valid, most)))


def is_small(spec: RunSpec, content: bytes) -> bool:
    """Whether the content of a request takes little memory and time, regardless of its rows."""
    dataset = spec.dataset
    if dataset.WhichOneof("source") != "content" or dataset.format == DATASET_FORMAT_PARQUET:
        return False
    if content.startswith(_GZIP) or len(content) > SMALL_LINES_BYTES:
        return False
    lines = max(content.count(b"\n"), content.count(b"\r"))
    if min(lines, dataset.row_limit or lines) > SMALL_ROWS:
        return False
    if len(content) <= SMALL_CONTENT_BYTES:
        return True
    # A line is decoded on its own; a CSV row may have many lines.
    if dataset.format not in (DATASET_FORMAT_UNSPECIFIED, DATASET_FORMAT_JSONL):
        return False
    start = 0
    while len(content) - start > SMALL_CONTENT_BYTES:
        end = content.rfind(b"\n", start, start + SMALL_CONTENT_BYTES + 1)
        if end < 0:
            return False
        start = end + 1
    return True


def _read(ask: Ask, spec: bytes, content: bytes, access: DatasetAccess, encode: Encode) -> Iterator[bytes]:
    """The task of the process: the samples of a dataset, then its manifest or an error."""
    del ask
    reader = SampleReader(RunSpec.FromString(spec), content, access)
    try:
        for piece in encode(reader):
            yield _SAMPLES + piece
        yield _MANIFEST + reader.manifest.SerializeToString()
    except DatasetError as error:
        kind = _LIMIT if isinstance(error, DatasetLimitError) else _ERROR
        yield kind + str(error).encode()
    except ServiceError as error:
        yield _ERROR + f"cannot be read: {error.message}".encode()
    except MemoryError:
        yield _ERROR + b"needs more memory than this gateway gives a dataset"


def _first_valid(most: int, samples: Iterable[NewSample]) -> Iterator[NewSample]:
    count = 0
    for sample in samples:
        if count < most and sample.failure is None:
            count += 1
            yield sample


def _encode_first_valid(most: int, samples: SampleReader) -> Iterator[bytes]:
    return _encode_samples(_first_valid(most, samples))


def _encode_samples(samples: Iterable[NewSample]) -> Iterator[bytes]:
    for sample in samples:
        message = sample.failure or RunSample(
            index=sample.index, line=sample.line, sample_id=sample.sample_id, tags=sample.tags
        )
        head = message.SerializeToString()
        yield b"".join((_HEAD.pack(len(head)), head, sample.request))


def _decode_sample(piece: bytes) -> NewSample:
    (size,) = _HEAD.unpack_from(piece)
    end = _HEAD.size + size
    head = RunSample.FromString(piece[_HEAD.size : end])
    return NewSample(
        index=head.index,
        line=head.line,
        sample_id=head.sample_id,
        tags=dict(head.tags),
        request=piece[end:],
        failure=head if head.state == SAMPLE_STATE_FAILED else None,
    )
