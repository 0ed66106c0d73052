"""What is sent with a call besides its message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import grpc

Pair = tuple[str, Any]
"""A key and its value, text or bytes."""


class Pairs(grpc.aio.Metadata):
    """Metadata as gRPC takes it, made to be sent and for nothing else.

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


def added(metadata: Iterable[Pair] | None, *pairs: Pair) -> Iterable[Pair]:
    """The metadata with pairs, unless it has such keys already: what a caller states stands."""
    if not metadata:
        return Pairs(pairs)
    given = tuple(metadata)
    named = {key for key, _ in given}
    return Pairs((*given, *(pair for pair in pairs if pair[0] not in named)))
