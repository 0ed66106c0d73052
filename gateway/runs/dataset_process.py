"""Reads datasets in a process of its own with bounded memory and time.

A dataset may need much more memory than its size, in ways that only its reader finds. The process ends before
its machine runs out of memory, and the gateway continues.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
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

SMALL_ROWS = 1000
"""The most lines, and so rows, that are read in the gateway itself."""
SMALL_CONTENT_BYTES = 256 << 10
"""The most bytes of JSON Lines and CSV that are read in the gateway itself."""
SMALL_LINES_BYTES = 2 << 20
"""The same for JSON Lines of which no line exceeds ``SMALL_CONTENT_BYTES``."""
_MODULES = ("pyarrow.compute", "pyarrow.parquet")
_GZIP = b"\x1f\x8b"
_HEAD = struct.Struct("!I")
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
                elif kind == _ERROR:
                    raise DatasetError(content.decode())
                else:
                    yield content


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
        for piece in encode(reader):
            yield _SAMPLES + piece
        yield _MANIFEST + reader.manifest.SerializeToString()
    except DatasetError as error:
        yield _ERROR + str(error).encode()
    except ServiceError as error:
        yield _ERROR + f"cannot be read: {error.message}".encode()
    except MemoryError:
        yield _ERROR + b"needs more memory than this gateway gives a dataset"


def _encode_samples(samples: SampleReader) -> Iterator[bytes]:
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
