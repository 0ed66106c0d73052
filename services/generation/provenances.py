"""Provenance: who answered, and of what parts an answer was made."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.judge.usage import add_usage


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
        provenance = response.provenance
        provenance.name, provenance.version, provenance.contract = self.name, self.version, self.contract
        provenance.latency.FromNanoseconds(round((time.perf_counter() - started) * 1e9))
        return response


def together(parts: Iterable[Provenance]) -> Provenance:
    """The provenance of several answers: the calls in order, each prompt once, the usage summed."""
    total = Provenance()
    for part in parts:
        total.prompts.extend(prompt for prompt in part.prompts if prompt not in total.prompts)
        total.completions.extend(part.completions)
        total.usage.CopyFrom(add_usage(total.usage, part.usage))
        total.parameters.update(part.parameters)
    return total
