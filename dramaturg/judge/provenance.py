"""Provenance of answers (``common.v1.Provenance``), and sums of usage (``common.v1.Usage``)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import cache
from operator import attrgetter
from typing import Any, Protocol

from google.protobuf.descriptor import Descriptor

from dramaturg.api.common.v1.provenance_pb2 import Provenance, Usage

MAX_AMOUNT = 10**12
"""The largest count and cost. A provider or judge that reports more has made an error."""

_COUNTS = tuple(field.name for field in Usage.DESCRIPTOR.fields if not field.has_presence)
_COSTS = tuple(field.name for field in Usage.DESCRIPTOR.fields if field.has_presence)
_read_counts = attrgetter(*_COUNTS)


def add_usage(first: Usage, second: Usage) -> Usage:
    """Returns the sum, member by member, at most ``MAX_AMOUNT``. The cost is absent where both are absent.

    A cost that is negative or not a number counts as 0.
    """
    return total_usage((first, second))


def total_usage(usages: Iterable[Usage]) -> Usage:
    """Returns the sum of all, as ``add_usage`` does. The sum of none is empty, without cost."""
    added: tuple[Any, ...] = tuple(usages)
    total = Usage()
    # All counts of a message are read at once: ``ListFields`` takes twice the time.
    sums = map(sum, zip(*map(_read_counts, added), strict=True))
    for name, count in zip(_COUNTS, sums, strict=False):
        if count:
            setattr(total, name, min(count, MAX_AMOUNT))
    for name in _COSTS:
        costs = [getattr(usage, name) for usage in added if usage.HasField(name)]
        if costs:
            setattr(total, name, min(sum(cost for cost in costs if cost > 0), MAX_AMOUNT))
    return total


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


def provenances_in(message: Any) -> Iterator[Provenance]:
    """The provenances that a message has at any depth."""
    for name, is_repeated, is_provenance in _carriers(message.DESCRIPTOR):
        if not is_repeated and not message.HasField(name):
            continue
        value = getattr(message, name)
        for one in value if is_repeated else (value,):
            if is_provenance:
                yield one
            else:
                yield from provenances_in(one)


def prompt_texts(message: Any) -> Iterator[tuple[str, str]]:
    """The SHA-256 and the text of each prompt whose text a message has (``PromptReference.text``)."""
    for provenance in provenances_in(message):
        for prompt in provenance.prompts:
            if prompt.text:
                yield prompt.sha256, prompt.text


@cache
def _carriers(descriptor: Descriptor) -> tuple[tuple[str, bool, bool], ...]:
    """The fields of a message that can have a provenance: name, whether repeated, whether it is one."""
    return tuple(
        (field.name, field.is_repeated, field.message_type is Provenance.DESCRIPTOR)
        for field in descriptor.fields
        if field.message_type is not None and _has_provenance(field.message_type)
    )


@cache
def _has_provenance(descriptor: Descriptor) -> bool:
    # No message of the contracts is recursive where it has a provenance; maps have none.
    if descriptor is Provenance.DESCRIPTOR:
        return True
    if descriptor.GetOptions().map_entry or not descriptor.full_name.startswith("dramaturg."):
        return False
    return any(
        field.message_type is not None and _has_provenance(field.message_type) for field in descriptor.fields
    )
