"""Enforces the limits that the contracts declare on their fields (``common/v1/limits.proto``)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from dramaturg.service.errors import Violation, invalid_fields
from dramaturg.service.message_checks import MAX_VIOLATIONS, message_check

__all__ = ["MAX_VIOLATIONS", "validate", "violations"]


def validate(message: Message, size: int | None = None) -> None:
    """Refuses a message that breaks a limit.

    Checked, at any depth: the members of ``FieldLimits``, that an enum's value is one that this server has,
    and that durations and times are in the range of their types. In a map, ``max_length`` and ``pattern``
    hold for keys and values. Elements beyond ``max_items`` are not checked.

    Args:
        message: The message.
        size: The bytes that it was read from, where that is known: then there is less to look at.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation, up to ``MAX_VIOLATIONS``.
    """
    found = violations(message, size)
    if found:
        raise invalid_fields(found)


def violations(message: Message, size: int | None = None) -> Sequence[Violation]:
    """All violations, in the order of the fields, up to ``MAX_VIOLATIONS`` (see ``validate``)."""
    size_bound = sys.maxsize if size is None else 1 << size.bit_length()
    check = message_check(cast("Descriptor", message.DESCRIPTOR), size_bound)
    return check(message)[:MAX_VIOLATIONS]
