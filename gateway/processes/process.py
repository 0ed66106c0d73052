"""A process with limits of memory and time.

The gateway writes frames to the standard input of ``python -m gateway.processes.worker`` and reads frames
from its standard output. The process ends when its input is closed, also by the death of the gateway. What it
writes is never unpickled.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Concatenate, ParamSpec, Self, cast

import grpc

from dramaturg.service.errors import Fault, ServiceError, Violation
from dramaturg.service.threads import StoppedError

logger = logging.getLogger(__name__)

FRAME = struct.Struct("!cI")
"""The kind of a frame and the length of its content."""
SETUP, TASK, ANSWER = b"U", b"T", b"A"
"""The frames to a process: its limits; a function with its arguments; the answer to a question."""
PIECE, QUESTION, DONE, FAILED = b"P", b"Q", b"D", b"F"
"""The frames from a process: a part of the result; a question; the end of a task; its error."""

CPU_SECONDS = 1800
"""The processor time that a task may take, unless its limits state another."""
_MAX_FRAME_BYTES = 1 << 30
_STOP_CHECK_MILLISECONDS = 500
_SHOWN_ERRORS = 2000

Arguments = ParamSpec("Arguments")
Ask = Callable[[bytes], bytes]
"""Asks the gateway a question during a task."""
Task = Callable[Concatenate[Ask, Arguments], Iterator[bytes]]
"""A function of a module, which yields the parts of its result."""


class ProcessDiedError(Exception):
    """The process died. The message has the reason."""


class OutOfTimeError(ProcessDiedError):
    """The task took more than the processor time of its limits."""


class TaskError(Exception):
    """A task raised an unexpected error; its traceback is logged."""


@dataclass(frozen=True)
class ProcessLimits:
    """The limits of a process."""

    memory_bytes: int
    """The memory that it may take besides its code."""
    node_credentials: bool = False
    """Whether it may ask the metadata address of the node for credentials."""
    modules: Sequence[str] = ()
    """The modules whose code does not count, besides that of the first task."""
    cpu_seconds: int = CPU_SECONDS
    """The processor time that each task may take."""


class LimitedProcess:
    """A process that runs tasks, one after the other. Its methods block.

    Args:
        limits: Its limits.
        is_stopped: Called every half second while a frame is awaited; reading ends once it returns True.
    """

    def __init__(self, limits: ProcessLimits, is_stopped: Callable[[], bool] = lambda: False) -> None:
        self._limits = limits
        self._is_stopped = is_stopped
        self._started: _Started | None = None
        self._is_killed = False
        self._state, self._use = threading.Lock(), threading.Lock()
        self.has_failed = False
        """Whether the last task ended with its own error, so that the process can run another one."""

    def begin(self, task: Task[Arguments], /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        """Sends a task. The previous one has ended."""
        self.has_failed = False
        with self._use:
            with self._state:
                if self._started is None and not self._is_killed:
                    self._started = _Started(self._limits, self._is_stopped)
            self._send(TASK, pickle.dumps((task, args, kwargs)))

    def answer(self, content: bytes) -> None:
        """Sends the answer to a question."""
        with self._use:
            self._send(ANSWER, content)

    def receive(self) -> tuple[bytes, bytes]:
        """The next frame of a task: a piece, a question or the end.

        Raises:
            ServiceError: The task raised it.
            TaskError: The task failed otherwise.
            ProcessDiedError: The process died.
            OutOfTimeError: The process died since the task took too much processor time.
            StoppedError: ``is_stopped`` returned True.
        """
        with self._use:
            started = self._started
            if started is None:
                raise ProcessDiedError("killed")
            head = started.output.read(FRAME.size)
            if len(head) < FRAME.size:
                raise self._died(started)
            kind, size = FRAME.unpack(head)
            if size > _MAX_FRAME_BYTES:
                raise ProcessDiedError(f"a frame of {size} bytes")
            content = started.output.read(size)
            if len(content) < size:
                raise self._died(started)
        if kind == FAILED:
            self.has_failed = True
            raise decode_error(content)
        return kind, content

    def pieces(
        self, task: Task[Arguments], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Iterator[bytes]:
        """The parts of the result of a task that asks nothing. Raises as ``receive`` does."""
        self.begin(task, *args, **kwargs)
        while True:
            kind, content = self.receive()
            if kind == DONE:
                return
            yield content

    def kill(self) -> None:
        """Ends the process. A method that waits for it returns."""
        with self._state:
            self._is_killed = True
            if self._started is not None:
                self._started.process.kill()

    def close(self) -> None:
        """Ends the process and frees what it has, once no other method is in progress."""
        self.kill()
        with self._use:
            if self._started is not None:
                self._started.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _send(self, kind: bytes, content: bytes) -> None:
        # A process that has died is reported by the reader of its output.
        with suppress(OSError, ValueError):
            if self._started is not None:
                self._started.send(kind, content)

    def _died(self, started: _Started) -> ProcessDiedError:
        code = started.process.wait()
        if code == -signal.SIGXCPU:
            return OutOfTimeError(f"it took more than {self._limits.cpu_seconds} s of processor time")
        if not self._is_killed:
            logger.error("a process died with code %d: %s", code, started.shown_errors())
        return ProcessDiedError(f"signal {-code}" if code < 0 else f"exit code {code}")


class _Started:
    """A process with its pipes."""

    def __init__(self, limits: ProcessLimits, is_stopped: Callable[[], bool]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gateway.processes.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=_environment(limits),
                # Ctrl-C on a terminal is for the gateway, which ends the process after its drain. In a
                # session of its own, Linux would schedule it as the gateway's equal despite its niceness.
                process_group=0,
            )
        except BaseException:
            self._errors.close()
            raise
        self._input = cast("IO[bytes]", self.process.stdin)
        self.output = _Output(cast("IO[bytes]", self.process.stdout).fileno(), is_stopped)
        setup = {
            "memory_bytes": limits.memory_bytes,
            "modules": [*limits.modules],
            "cpu_seconds": limits.cpu_seconds,
        }
        with suppress(OSError):
            self.send(SETUP, json.dumps(setup).encode())

    def send(self, kind: bytes, content: bytes) -> None:
        self._input.write(FRAME.pack(kind, len(content)))
        self._input.write(content)
        self._input.flush()

    def shown_errors(self) -> str:
        """The end of what the process wrote to its standard error."""
        length = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, length - _SHOWN_ERRORS))
        return self._errors.read().decode(errors="replace")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        with suppress(OSError, ValueError):
            self._input.close()
        cast("IO[bytes]", self.process.stdout).close()
        self._errors.close()


def encode_error(error: ServiceError) -> bytes:
    """The content of a ``FAILED`` frame."""
    fields = {
        "code": error.code.name,
        "reason": int(error.reason),
        "message": error.message,
        "metadata": error.metadata,
        "violations": [[one.field, one.description, one.reason] for one in error.violations],
        "retry_after": error.retry_after,
        "log": "" if error.__cause__ is None else str(error.__cause__),
    }
    return json.dumps(fields).encode()


def decode_error(content: bytes) -> ServiceError | TaskError:
    """The error of a ``FAILED`` frame, which is logged where callers must not know its cause."""
    fields: dict[str, Any] = json.loads(content)
    if fields["log"]:
        logger.error("a task failed: %s", fields["log"])
    if "code" not in fields:
        return TaskError("a task of a process failed")
    return ServiceError(
        grpc.StatusCode[fields["code"]],
        fields["reason"],
        fields["message"],
        metadata=fields["metadata"],
        violations=[
            Violation(field, Fault(description, reason))
            for field, description, reason in fields["violations"]
        ],
        retry_after=fields["retry_after"],
    )


class _Output:
    """Reads a pipe until a condition holds."""

    def __init__(self, descriptor: int, is_stopped: Callable[[], bool]) -> None:
        self._descriptor = descriptor
        self._is_stopped = is_stopped
        self._buffer = bytearray()
        # select() refuses descriptors from 1024 on, which a gateway with many connections has.
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def read(self, size: int) -> bytes:
        """Returns that number of bytes, fewer at the end."""
        while len(self._buffer) < size:
            while not self._poll.poll(_STOP_CHECK_MILLISECONDS):
                if self._is_stopped():
                    raise StoppedError
            piece = os.read(self._descriptor, 1 << 20)
            if not piece:
                break
            self._buffer += piece
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found


def _environment(limits: ProcessLimits) -> dict[str, str]:
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
    return environment
