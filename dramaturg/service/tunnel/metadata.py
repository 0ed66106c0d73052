"""A call's metadata, as it travels in a tunnel."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from dramaturg.api.tunnel.v1.tunnel_service_pb2 import Metadatum
from dramaturg.service.metadata import Pair

MOST_PAIRS = 64
LONGEST_VALUE = 8192
"""Of a value, in characters or bytes. These two are the contract's limits."""

_KEY = re.compile(r"[0-9a-z_.-]{1,200}")


class Received(NamedTuple):
    """A pair as gRPC gives it to servicers."""

    key: str
    value: str | bytes


def is_plain(pairs: Iterable[Pair]) -> bool:
    """Whether metadata is within the limits of a tunnel, and such as gRPC would send and give unchanged."""
    count = 0
    for key, value in pairs:
        count += 1
        if not isinstance(key, str) or not _is_key(key):
            return False
        if key.endswith("-bin"):
            fits = isinstance(value, bytes)
        else:
            # gRPC strips blanks, and refuses what is not printable ASCII.
            fits = isinstance(value, str) and _is_text(value)
        if not fits or len(value) > LONGEST_VALUE:
            return False
    return count <= MOST_PAIRS


def _is_text(value: str) -> bool:
    return value.isascii() and value.isprintable() and value == value.strip()


@lru_cache(maxsize=256)
def _is_key(key: str) -> bool:
    return _KEY.fullmatch(key) is not None


def pack(pairs: Iterable[Pair]) -> list[Metadatum]:
    """Pairs as messages."""
    return [
        Metadatum(key=key, binary=value) if isinstance(value, bytes) else Metadatum(key=key, text=value)
        for key, value in pairs
    ]


def unpack(metadata: Iterable[Metadatum]) -> tuple[Any, ...]:
    """Messages as pairs (see [Received])."""
    return tuple(Received(one.key, one.binary if one.HasField("binary") else one.text) for one in metadata)
