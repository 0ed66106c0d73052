"""Provenance of answers: the service, and the latency."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.judge.provenance import sign


class Signed(Protocol):
    """A response that says how it was made."""

    @property
    def provenance(self) -> Provenance:
        """How it was made."""


Response = TypeVar("Response", bound=Signed)


@dataclass(frozen=True)
class Signature:
    """Who answers: the same as the identity of the contract says."""

    name: str
    version: str
    contract: str

    async def under(self, work: Awaitable[Response]) -> Response:
        """What the work answers, with who answered and how long it took."""
        started = time.perf_counter()
        response = await work
        sign(response.provenance, self, self.contract, started=started)
        return response
