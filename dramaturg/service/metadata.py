"""Metadata of the calls that a client makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import grpc

Pair = tuple[str, Any]
"""A key and its value, text or bytes."""


class Pairs(grpc.aio.Metadata):
    """Metadata that is sent, and not looked into.

    gRPC's own sorts the pairs by key when it is made and takes them out again one by one when it is sent.

    Args:
        pairs: Keys and values, in order.
    """

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._pairs = tuple(pairs)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)


def appended(
    stated: Iterable[Pair] | None, pairs: Sequence[Pair], always: Sequence[Pair] = ()
) -> Iterable[Pair] | None:
    """The metadata of a call.

    Args:
        stated: What the caller states.
        pairs: What is added, unless the caller states such keys.
        always: What is added behind it.
    """
    if not stated:
        return Pairs((*pairs, *always)) if pairs or always else None
    given = tuple(stated)
    if not pairs and not always:
        return Pairs(given)
    keys = {key for key, _ in given}
    return Pairs((*given, *(pair for pair in pairs if pair[0] not in keys), *always))
