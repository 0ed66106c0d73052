"""GenerationService.Generate and GenerateBatch, over the network and within the process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.generation.v1.generation_service_pb2 import (
    Completion,
    GenerateBatchResponse,
    GenerateRequest,
    GenerateResponse,
)
from dramaturg.service import context
from dramaturg.service.errors import ServiceError, to_error_status
from services.generation import codec
from services.generation.completions import CachePolicy, Completer
from services.generation.deadlines import DeadlinePolicy
from services.generation.statuses import DOMAIN_ERRORS, service_error

logger = logging.getLogger(__name__)

_STARTED_TOGETHER = 16
"""The number of requests of a batch that start before the event loop runs other tasks."""


class Generator:
    """Decodes requests, completes them and encodes the completions.

    Args:
        completer: Completes conversations.
        deadlines: How long a request may take.
        max_batch_requests: The maximum number of requests in flight of all batches.
        retry_seconds: The retry delay of refused batches, in seconds.
    """

    def __init__(
        self,
        completer: Completer,
        deadlines: DeadlinePolicy,
        *,
        max_batch_requests: int = 4000,
        retry_seconds: float = 1.0,
    ) -> None:
        self._completer = completer
        self._deadlines = deadlines
        self._max_batch_requests = max_batch_requests
        self._retry_seconds = retry_seconds
        self._batch_requests = 0

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        """Completes a conversation.

        Raises:
            ServiceError: The request is not valid, or there is no completion.
        """
        return GenerateResponse(completion=await self._complete(request))

    async def generate_batch(
        self, requests: Sequence[GenerateRequest]
    ) -> AsyncGenerator[GenerateBatchResponse]:
        """Completes several conversations; each result comes when it is known.

        Closing the generator cancels the requests that are not answered. A completion that other callers
        wait for is still made.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED: the batch does not fit into the limit; nothing was started.
        """
        self._admit(len(requests))
        tasks: list[asyncio.Task[GenerateBatchResponse]] = []
        finished: asyncio.Queue[asyncio.Task[GenerateBatchResponse]] = asyncio.Queue()
        try:
            for index, request in enumerate(requests):
                task = asyncio.create_task(self._respond(index, request))
                task.add_done_callback(finished.put_nowait)
                tasks.append(task)
                if index % _STARTED_TOGETHER == _STARTED_TOGETHER - 1:
                    await asyncio.sleep(0)
            for _ in tasks:
                yield (await finished.get()).result()
        finally:
            for task in tasks:
                task.cancel()
            self._batch_requests -= len(requests)
            await asyncio.gather(*tasks, return_exceptions=True)

    def _admit(self, count: int) -> None:
        if self._batch_requests + count > self._max_batch_requests:
            raise ServiceError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                error_reason_pb2.ERROR_REASON_OVERLOADED,
                f"{self._batch_requests} requests of batches are in progress; {count} more would exceed the "
                f"limit of {self._max_batch_requests}",
                metadata={"limit": str(self._max_batch_requests)},
                retry_after=self._retry_seconds,
            )
        self._batch_requests += count

    async def _respond(self, index: int, request: GenerateRequest) -> GenerateBatchResponse:
        try:
            return GenerateBatchResponse(index=index, completion=await self._complete(request))
        except ServiceError as error:
            return GenerateBatchResponse(index=index, error=to_error_status(error))
        except Exception:
            logger.exception("request %d of a batch failed", index)
            internal = ServiceError(
                grpc.StatusCode.INTERNAL, error_reason_pb2.ERROR_REASON_INTERNAL, "internal error"
            )
            return GenerateBatchResponse(index=index, error=to_error_status(internal))

    async def _complete(self, request: GenerateRequest) -> Completion:
        begun = time.perf_counter()
        call, policy = codec.decode_request(request)
        if policy is CachePolicy.USE and (served := context.current()) is not None:
            call.batch_until = served.batch_until
        try:
            completion = await self._completer.complete(call, self._deadlines.deadline(), policy)
        except DOMAIN_ERRORS as error:
            raise service_error(error) from error
        return codec.encode_completion(completion, time.perf_counter() - begun)
