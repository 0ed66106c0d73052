"""Refuses calls beyond what the server takes.

gRPC's own ``maximum_concurrent_rpcs`` refuses health probes too, so that a busy pod is killed, and says
neither why nor when to come back.
"""

from __future__ import annotations

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.service.errors import ServiceError


class Admission:
    """Counts the calls under way and refuses the one too many. A context manager around each call.

    Args:
        limit: The most calls at once.
        retry_after: Seconds after which a refused caller is told to try again.
    """

    def __init__(self, limit: int, *, retry_after: float) -> None:
        self._limit = limit
        self._retry_after = retry_after
        self._under_way = 0

    def __enter__(self) -> None:
        """Raises RESOURCE_EXHAUSTED (ERROR_REASON_OVERLOADED) where the limit is reached."""
        if self._under_way >= self._limit:
            raise ServiceError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                error_reason_pb2.ERROR_REASON_OVERLOADED,
                f"the server has as many calls as it takes ({self._limit})",
                metadata={"limit": str(self._limit)},
                retry_after=self._retry_after,
            )
        self._under_way += 1

    def __exit__(self, *_: object) -> None:
        self._under_way -= 1
