"""Reads datasets in a process of its own with bounded memory and time.

A dataset may need much more memory than its size, in ways that only its reader finds. The process ends before
its machine runs out of memory, and the gateway continues.

The gateway writes the request to the standard input of ``python -m gateway.runs.dataset_process`` and keeps
it open: the process ends when it is closed. The process writes frames to its standard output: a kind, two
lengths and two parts.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import select
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, cast

from dramaturg.api.evaluation.v1.run_pb2 import (
    DATASET_FORMAT_JSONL,
    DATASET_FORMAT_PARQUET,
    DATASET_FORMAT_UNSPECIFIED,
    DatasetManifest,
    RunSample,
    RunSpec,
)
from dramaturg.datasets import DatasetError
from dramaturg.service.errors import ServiceError
from gateway.runs.dataset_access import DatasetAccess, ProcessLimits
from gateway.runs.datasets import SampleReader
from gateway.runs.records import NewSample

logger = logging.getLogger(__name__)

CPU_SECONDS = 1800
"""The processor time that a process may take."""
SMALL_CONTENT_BYTES = 256 << 10
"""The most bytes of JSON Lines and CSV that are read in the gateway itself."""
SMALL_LINES_BYTES = 2 << 20
"""The same for JSON Lines of which no line exceeds ``SMALL_CONTENT_BYTES``."""
_GZIP = b"\x1f\x8b"
_NICENESS = 10
_STOP_CHECK_SECONDS = 0.5
_SHOWN_ERRORS = 2000
_FRAME = struct.Struct("!cII")
_HEADER = struct.Struct("!III")
_SAMPLE, _INVALID, _MANIFEST, _ERROR = b"S", b"I", b"M", b"E"


class DatasetProcessError(Exception):
    """The process died. The message has the reason."""


class StoppedError(Exception):
    """The caller stopped reading."""


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
        DatasetProcessError: From the iteration: the process died.
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
        with tempfile.TemporaryFile() as errors, _started(errors, self._limits) as process:
            threading.Thread(target=self._send, args=(process,), daemon=True).start()
            for kind, first, second in self._frames(process, errors):
                if kind == _MANIFEST:
                    self._manifest = DatasetManifest.FromString(first)
                    return
                if kind == _ERROR:
                    raise DatasetError(first.decode())
                yield _sample(kind, RunSample.FromString(first), second)

    def _send(self, process: subprocess.Popen[bytes]) -> None:
        access = {
            "folders": [str(folder) for folder in self._access.folders],
            "schemes": list(self._access.schemes),
            "max_rows": self._access.max_rows,
            "max_bytes": self._access.max_bytes,
            "memory_bytes": self._limits.memory_bytes,
            "prefixes": None if self._access.prefixes is None else list(self._access.prefixes),
        }
        parts = (json.dumps(access).encode(), self._spec.SerializeToString(), self._content)
        assert process.stdin is not None
        # A process that has died is reported by the reader of its output.
        with suppress(OSError, ValueError):
            process.stdin.write(_HEADER.pack(*map(len, parts)))
            for part in parts:
                process.stdin.write(part)
            process.stdin.flush()

    def _frames(
        self, process: subprocess.Popen[bytes], errors: IO[bytes]
    ) -> Iterator[tuple[bytes, bytes, bytes]]:
        read = _Output(cast("IO[bytes]", process.stdout).fileno(), self._is_stopped).read
        while True:
            head = read(_FRAME.size)
            if len(head) < _FRAME.size:
                raise _died(process, errors)
            kind, first, second = _FRAME.unpack(head)
            parts = read(first), read(second)
            if len(parts[0]) + len(parts[1]) < first + second:
                raise _died(process, errors)
            yield kind, *parts


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
    if len(content) <= SMALL_CONTENT_BYTES:
        return True
    # A line is decoded on its own; a CSV row may have many lines.
    return (
        dataset.format in (DATASET_FORMAT_UNSPECIFIED, DATASET_FORMAT_JSONL)
        and len(content) <= SMALL_LINES_BYTES
        and max(map(len, content.split(b"\n"))) <= SMALL_CONTENT_BYTES
    )


class _Output:
    """Reads a pipe until a condition holds."""

    def __init__(self, descriptor: int, is_stopped: Callable[[], bool]) -> None:
        self._descriptor = descriptor
        self._is_stopped = is_stopped
        self._buffer = bytearray()

    def read(self, size: int) -> bytes:
        """Returns that number of bytes, fewer at the end."""
        while len(self._buffer) < size:
            while not select.select([self._descriptor], [], [], _STOP_CHECK_SECONDS)[0]:
                if self._is_stopped():
                    raise StoppedError
            piece = os.read(self._descriptor, 1 << 20)
            if not piece:
                break
            self._buffer += piece
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found


@contextmanager
def _started(errors: IO[bytes], limits: ProcessLimits) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        # Fewer reservations of address space, which the limit counts.
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MALLOC_ARENA_MAX": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    if not limits.node_credentials:
        environment |= {"AWS_EC2_METADATA_DISABLED": "true", "NO_GCE_CHECK": "true"}
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "gateway.runs.dataset_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        with suppress(OSError, ValueError):
            process.stdin.close()


def _died(process: subprocess.Popen[bytes], errors: IO[bytes]) -> DatasetProcessError:
    code = process.wait()
    length = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, length - _SHOWN_ERRORS))
    shown = errors.read().decode(errors="replace")
    logger.error("a process that read a dataset died with code %d: %s", code, shown)
    return DatasetProcessError(f"signal {-code}" if code < 0 else f"exit code {code}")


def _sample(kind: bytes, sample: RunSample, request: bytes) -> NewSample:
    return NewSample(
        index=sample.index,
        line=sample.line,
        sample_id=sample.sample_id,
        tags=dict(sample.tags),
        request=request,
        failure=sample if kind == _INVALID else None,
    )


def main() -> None:
    """Reads the request from standard input and writes its samples to standard output."""
    source, output = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What libraries print must not become part of a frame.
    os.dup2(2, 1)
    options, spec, content = (source.read(length) for length in _HEADER.unpack(source.read(_HEADER.size)))
    threading.Thread(target=_end_with_input, daemon=True).start()
    given = json.loads(options)
    _limit(given.pop("memory_bytes"))
    folders = tuple(map(Path, given.pop("folders")))
    access = DatasetAccess(folders, **given)
    reader = SampleReader(RunSpec.FromString(spec), content, access)
    try:
        for sample in reader:
            _write_sample(cast("BinaryIO", output), sample)
        _write(cast("BinaryIO", output), _MANIFEST, reader.manifest.SerializeToString())
    except DatasetError as error:
        _write(cast("BinaryIO", output), _ERROR, str(error).encode())
    except ServiceError as error:
        _write(cast("BinaryIO", output), _ERROR, f"cannot be read: {error.message}".encode())
    except MemoryError:
        _write(cast("BinaryIO", output), _ERROR, b"needs more memory than this gateway gives a dataset")
    output.flush()


def _limit(memory_bytes: int) -> None:
    """Bounds the memory and time of this process, and lets others go first."""
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        # Loaded first: their code must not count.
        import pyarrow.compute
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        pass
    try:
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        # Where the kernel runs out of memory nevertheless, it ends this process before the gateway.
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:  # not Linux
        return
    resource.setrlimit(resource.RLIMIT_AS, (taken + memory_bytes,) * 2)


def _end_with_input() -> None:
    """Ends this process when the gateway closes its input, also by dying."""
    while os.read(0, 1 << 16):
        pass
    os._exit(1)


def _write_sample(output: BinaryIO, sample: NewSample) -> None:
    if sample.failure is not None:
        _write(output, _INVALID, sample.failure.SerializeToString())
        return
    message = RunSample(index=sample.index, line=sample.line, sample_id=sample.sample_id, tags=sample.tags)
    _write(output, _SAMPLE, message.SerializeToString(), sample.request)


def _write(output: BinaryIO, kind: bytes, first: bytes, second: bytes = b"") -> None:
    output.write(_FRAME.pack(kind, len(first), len(second)))
    output.write(first)
    output.write(second)


if __name__ == "__main__":
    main()
