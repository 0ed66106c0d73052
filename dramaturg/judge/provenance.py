"""Provenance of answers (``common.v1.Provenance``)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.judge.usage import add_usage


class Signer(Protocol):
    """The name and version of an implementation; every ``dramaturg.judge.protocols.Judge`` is a signer."""

    @property
    def name(self) -> str:
        """The implementation's name."""

    @property
    def version(self) -> str:
        """Its version."""


def sign(provenance: Provenance, signer: Signer, contract: str, *, started: float) -> None:
    """Writes the name, version and contract of the signer and the elapsed time into ``provenance``.

    Args:
        provenance: The provenance of the answer: prompts, completions, usage, parameters.
        signer: The implementation that answered.
        contract: The full name of its contract.
        started: The start time, of ``time.perf_counter``.
    """
    provenance.name = signer.name
    provenance.version = signer.version
    provenance.contract = contract
    provenance.latency.FromNanoseconds(round((time.perf_counter() - started) * 1e9))


def merge(parts: Iterable[Provenance]) -> Provenance:
    """Merges the provenance of several answers: calls in order, each prompt once, the sum of the usage."""
    total = Provenance()
    for part in parts:
        total.prompts.extend(prompt for prompt in part.prompts if prompt not in total.prompts)
        total.completions.extend(part.completions)
        total.usage.CopyFrom(add_usage(total.usage, part.usage))
        total.parameters.update(part.parameters)
    return total
