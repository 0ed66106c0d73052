"""Model calls that wait for batches of their providers (``RunSpec.batch_then_live``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from dramaturg.api.common.v1.error_reason_pb2 import ERROR_REASON_BATCH_PENDING, ErrorReason
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_BATCH_PENDING, AbstainReason
from dramaturg.service.errors import ServiceError

_PENDING = {
    AbstainReason.DESCRIPTOR.full_name: ABSTAIN_REASON_BATCH_PENDING,
    ErrorReason.DESCRIPTOR.full_name: ERROR_REASON_BATCH_PENDING,
}


@dataclass
class BatchWait:
    """The wait of one evaluation.

    Attributes:
        until: Until when its model calls may wait, in seconds since 1970.
        is_pending: Whether one of them waits, so that the evaluation has no result yet.
    """

    until: float
    is_pending: bool = False

    def note(self, answer: Any) -> None:
        """Notes an answer of a judge."""
        self.is_pending = self.is_pending or (isinstance(answer, Message) and waits_for_batch(answer))

    def raise_if_pending(self) -> None:
        """Ends an evaluation whose next calls depend on one that waits.

        Raises:
            ServiceError: ABORTED, ERROR_REASON_BATCH_PENDING.
        """
        if self.is_pending:
            raise ServiceError(
                grpc.StatusCode.ABORTED, ERROR_REASON_BATCH_PENDING, "model calls wait for batches"
            )


def waits_for_batch(message: Message) -> bool:
    """Whether a message abstains or has an error, at any depth, because a model call waits for a batch."""
    return any(
        _waits(field, value if field.is_repeated else (value,)) for field, value in message.ListFields()
    )


def _waits(field: FieldDescriptor, values: Iterable[Any]) -> bool:
    if field.enum_type is not None:
        return _PENDING.get(field.enum_type.full_name, -1) in values
    if field.message_type is None or field.message_type.GetOptions().map_entry:
        return False
    return any(waits_for_batch(one) for one in values)
