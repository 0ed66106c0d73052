"""Provenance of answers (``common.v1.Provenance``)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Protocol

from google.protobuf.descriptor import Descriptor

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
