"""A call's metadata, as it travels in a tunnel."""

from __future__ import annotations

from collections.abc import Iterable

from dramaturg.api.tunnel.v1.tunnel_service_pb2 import Metadatum
from dramaturg.service.metadata import Pair


def pack(pairs: Iterable[Pair]) -> list[Metadatum]:
    """Pairs as messages."""
    return [
        Metadatum(key=key, text=value) if isinstance(value, str) else Metadatum(key=key, binary=value)
        for key, value in pairs
    ]


def unpack(metadata: Iterable[Metadatum]) -> tuple[Pair, ...]:
    """Messages as pairs."""
    return tuple((one.key, one.binary if one.HasField("binary") else one.text) for one in metadata)
