"""Page tokens (AIP-158): opaque, and of use only with the request that they were given for."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from dramaturg.service.errors import invalid

Key = Sequence[int | str]


def next_token(request: Any, key: Key) -> str:
    """The token of the page after an item.

    Args:
        request: The request that was answered; it has ``page_size`` and ``page_token``.
        key: What the item is found by.
    """
    packed = json.dumps([_digest(request), *key], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def key_of(request: Any, *kinds: type[int | str]) -> Key | None:
    """The key in a request's token; None where it asks for the first page.

    Args:
        request: The request. Its page size may differ from that of the page before.
        kinds: The types of the key's members.

    Raises:
        ServiceError: INVALID_ARGUMENT: the token is none, or was given for another request.
    """
    token: str = request.page_token
    if not token:
        return None
    try:
        padded = token + "=" * (-len(token) % 4)
        unpacked = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        unpacked = None
    fits = (
        isinstance(unpacked, list)
        and len(unpacked) == len(kinds) + 1
        and all(type(part) is kind for part, kind in zip(unpacked[1:], kinds, strict=True))
    )
    if not isinstance(unpacked, list) or not fits:
        raise invalid("page_token", "is no token that this service gave")
    if unpacked[0] != _digest(request):
        raise invalid("page_token", "was given for a request with another run or filter")
    return unpacked[1:]


def _digest(request: Any) -> str:
    """Names what is asked for, whatever the page."""
    bare = type(request)()
    bare.CopyFrom(request)
    bare.ClearField("page_size")
    bare.ClearField("page_token")
    named = request.DESCRIPTOR.full_name.encode() + bare.SerializeToString(deterministic=True)
    return hashlib.sha256(named).hexdigest()[:16]
