"""Where an answer comes from (``common.v1.Provenance``)."""

from __future__ import annotations

import time

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.judge.protocols import Judge


def sign(provenance: Provenance, judge: Judge, contract: str, *, started: float) -> None:
    """Writes who answered into ``provenance``, the same as its identity says, and how long it took.

    Args:
        provenance: What the judge itself said of its answer: prompts, completions, usage, parameters.
        judge: Who answered.
        contract: The full name of the contract it answered by.
        started: When it began, on the clock of ``time.perf_counter``.
    """
    provenance.name = judge.name
    provenance.version = judge.version
    provenance.contract = contract
    provenance.latency.FromNanoseconds(round((time.perf_counter() - started) * 1e9))
