"""Tasks of processes, in a module of their own: each process imports it."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterator

from dramaturg.service.errors import invalid
from gateway.processes.process import Ask


def numbers(ask: Ask, count: int) -> Iterator[bytes]:
    for number in range(count):
        yield str(number).encode()


def echo(ask: Ask, question: bytes) -> Iterator[bytes]:
    yield ask(question) + ask(b"")


def fail(ask: Ask, kind: str) -> Iterator[bytes]:
    yield b"first"
    if kind == "service":
        raise invalid("field", "is wrong")
    if kind == "memory":
        yield bytes(1 << 30)
    raise KeyError(kind)


def large(ask: Ask) -> Iterator[bytes]:
    while True:
        yield bytes(1 << 20)


def identity(ask: Ask) -> Iterator[bytes]:
    yield f"{os.getpid()} {os.nice(0)} {os.getpgrp()} {os.getsid(0)}".encode()


def work_and_tell_limit(ask: Ask, seconds: float) -> Iterator[bytes]:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    yield str(resource.getrlimit(resource.RLIMIT_CPU)[0]).encode()


def forever(ask: Ask) -> Iterator[bytes]:
    yield bytes(1 << 20)  # small pieces wait for others
    threading.Event().wait()
