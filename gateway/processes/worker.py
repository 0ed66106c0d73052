"""Runs tasks in a process of its own with limits: ``python -m gateway.processes.worker``.

See ``gateway.processes.process`` for the frames.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import pickle
import resource
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from queue import Queue
from typing import BinaryIO, cast

from dramaturg.service.errors import ServiceError, too_large
from gateway.processes.process import (
    ANSWER,
    DONE,
    FAILED,
    FRAME,
    PIECE,
    QUESTION,
    SETUP,
    TASK,
    encode_error,
)

_NICENESS = 10
_QUEUED_FRAMES = 4


class _Link:
    """The frames of this process."""

    def __init__(self, source: BinaryIO, output: BinaryIO) -> None:
        self._source, self._output = source, output
        self._frames: Queue[tuple[bytes, bytes]] = Queue(_QUEUED_FRAMES)
        threading.Thread(target=self._read, daemon=True).start()

    def next(self, *kinds: bytes) -> tuple[bytes, bytes]:
        """The next frame of one of these kinds."""
        while True:
            kind, content = self._frames.get()
            if kind in kinds:
                return kind, content

    def send(self, kind: bytes, content: bytes = b"") -> None:
        self._output.write(FRAME.pack(kind, len(content)))
        self._output.write(content)
        if kind != PIECE:
            self._output.flush()

    def ask(self, question: bytes) -> bytes:
        self.send(QUESTION, question)
        return self.next(ANSWER)[1]

    def _read(self) -> None:
        """Ends this process when the gateway closes its input, also by dying."""
        while len(head := self._source.read(FRAME.size)) == FRAME.size:
            kind, size = FRAME.unpack(head)
            self._frames.put((kind, self._source.read(size)))
        os._exit(1)


def main() -> None:
    """Runs tasks until the input ends."""
    source, output = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What libraries print must not become part of a frame.
    os.dup2(2, 1)
    link = _Link(cast("BinaryIO", source), cast("BinaryIO", output))
    setup = json.loads(link.next(SETUP)[1])
    os.nice(_NICENESS)
    for module in setup["modules"]:
        _load(module)
    memory_bytes: int = setup["memory_bytes"]
    is_limited = False
    while True:
        _, content = link.next(TASK)
        task, args, kwargs = pickle.loads(content)  # noqa: S301 - written by the gateway
        del content
        if not is_limited:
            _limit(memory_bytes)
            is_limited = True
        _limit_time(setup["cpu_seconds"])
        try:
            for piece in task(link.ask, *args, **kwargs):
                link.send(PIECE, piece)
        except ServiceError as error:
            link.send(FAILED, encode_error(error))
        except MemoryError:
            link.send(FAILED, encode_error(_out_of_memory(memory_bytes)))
        except Exception:
            link.send(FAILED, json.dumps({"log": traceback.format_exc()}).encode())
        else:
            link.send(DONE)


def _load(module: str) -> None:
    with suppress(ImportError):  # of an extra that is not installed
        importlib.import_module(module)


def _limit(memory_bytes: int) -> None:
    """Bounds the memory of this process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        # Where the kernel runs out of memory nevertheless, it ends this process before the gateway.
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:  # not Linux
        return
    resource.setrlimit(resource.RLIMIT_AS, (taken + memory_bytes,) * 2)


def _limit_time(seconds: int) -> None:
    """Bounds the processor time of the next task: the limit of the system is for the whole process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(
        resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard)
    )


def _out_of_memory(memory_bytes: int) -> ServiceError:
    message = f"the work needs more than the {memory_bytes >> 20} MiB of memory of a process"
    return too_large(message, limit=memory_bytes)


if __name__ == "__main__":
    main()
