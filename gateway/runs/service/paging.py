"""Fills pages up to a number of items and of bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from google.protobuf.message import Message

Item = TypeVar("Item", bound=Message)
Key = TypeVar("Key")

MAX_PAGE_BYTES = 4 << 20
"""A page ends before it, unless its first item alone is larger."""
_READ_AT_ONCE = 100


class Page(NamedTuple, Generic[Key, Item]):
    """Items in order."""

    items: Sequence[Item]
    """The items."""
    last: Key | None
    """The key of the last one, where there are more after it; None: there are none."""


async def fill_page(
    read: Callable[[Key, int], Awaitable[Sequence[tuple[Key, Item]]]],
    after: Key,
    size: int,
    *,
    max_bytes: int = MAX_PAGE_BYTES,
) -> Page[Key, Item]:
    """Reads a page.

    Args:
        read: Reads at most so many items after a key, each with its own.
        after: The key that the page begins after.
        size: The most items.
        max_bytes: The most bytes.
    """
    items: list[Item] = []
    total = 0
    while True:
        wanted = min(size + 1 - len(items), _READ_AT_ONCE)
        found = await read(after, wanted)
        for key, item in found:
            total += item.ByteSize()
            if len(items) == size or (items and total > max_bytes):
                return Page(items, after)
            items.append(item)
            after = key
        if len(found) < wanted:
            return Page(items, None)
