"""The usage that the responses of a call report."""

from __future__ import annotations

from typing import Any

from dramaturg.api.common.v1.provenance_pb2 import Usage
from gateway.runs.records import Spending


class CallUsage:
    """Adds up the usage of a call as its responses come.

    The assessments of a stream report what each of them cost, its result reports the total: a call that its
    caller cancels has cost what was sent until then.
    """

    def __init__(self) -> None:
        self.spent = Spending()
        """The usage of the responses so far."""

    def add(self, response: Any) -> Spending:
        """The spending that a response adds."""
        total, parts = _usages(response)
        if total is not None:
            return self.rest(total)
        added = sum(map(Spending.of, parts), Spending())
        self.spent += added
        return added

    def rest(self, total: Usage) -> Spending:
        """The spending that a total adds."""
        all_spent = Spending.of(total)
        added = Spending(
            max(0, all_spent.tokens - self.spent.tokens), max(0.0, all_spent.usd - self.spent.usd)
        )
        self.spent += added
        return added


def _usages(message: Any) -> tuple[Usage | None, list[Usage]]:
    """The total that a message reports, or else the usage of its parts."""
    fields = message.DESCRIPTOR.fields_by_name
    if "usage" in fields and fields["usage"].message_type is Usage.DESCRIPTOR and message.HasField("usage"):
        return message.usage, []
    if "provenance" in fields and message.HasField("provenance"):
        return None, [message.provenance.usage]
    parts: list[Usage] = []
    for field, value in message.ListFields():
        if field.message_type is None or field.is_repeated:
            continue
        total, found = _usages(value)
        if total is not None:
            return total, []
        parts += found
    return None, parts
