"""Provenance of answers (``common.v1.Provenance``)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.judge.usage import add_usage


class Signer(Protocol):
    """Who answers; every ``dramaturg.judge.protocols.Judge`` is one."""

    @property
    def name(self) -> str:
        """The implementation's name."""

    @property
    def version(self) -> str:
        """Its version."""


def sign(provenance: Provenance, signer: Signer, contract: str, *, started: float) -> None:
    """Writes who answered into ``provenance``, the same as its identity says, and how long it took.

    Args:
        provenance: What the signer itself said of its answer: prompts, completions, usage, parameters.
        signer: Who answered.
        contract: The full name of the contract it answered by.
        started: When it began, on the clock of ``time.perf_counter``.
    """
    provenance.name = signer.name
    provenance.version = signer.version
    provenance.contract = contract
    provenance.latency.FromNanoseconds(round((time.perf_counter() - started) * 1e9))


def merge(parts: Iterable[Provenance]) -> Provenance:
    """The provenance of several answers: the calls in order, each prompt once, the usage summed."""
    total = Provenance()
    for part in parts:
        total.prompts.extend(prompt for prompt in part.prompts if prompt not in total.prompts)
        total.completions.extend(part.completions)
        total.usage.CopyFrom(add_usage(total.usage, part.usage))
        total.parameters.update(part.parameters)
    return total
