"""Fakes and servers for the tests of callers and judges.

- ``serve`` serves contracts on a free port; ``in_thread`` does so for tests that are not asynchronous.
- ``FakeGeneration`` is a generation service with scripted answers; ``completion`` makes an answer.
- ``FakeJudge`` is a judge of texts (``judging.v1.JudgeService``) with scripted verdicts.
- ``serve_gateway`` serves a gateway with given judges. It needs the extra ``platform``.

``dramaturg.testing.fixtures`` has them as pytest fixtures; a test suite names it in ``pytest_plugins``.
"""

from __future__ import annotations

from dramaturg.testing.generation import FakeGeneration, completion
from dramaturg.testing.servers import (
    FakeJudge,
    PlatformMissingError,
    RegisteredJudge,
    in_thread,
    serve,
    serve_gateway,
    until,
)

__all__ = [
    "FakeGeneration",
    "FakeJudge",
    "PlatformMissingError",
    "RegisteredJudge",
    "completion",
    "in_thread",
    "serve",
    "serve_gateway",
    "until",
]
