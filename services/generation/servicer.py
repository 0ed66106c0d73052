"""GenerationService: decodes, asks the completer, encodes; over the network and within the process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.api.generation.v1 import generation_service_pb2_grpc as pb_grpc
from dramaturg.api.generation.v1.generation_service_pb2 import (
    Completion,
    GenerateBatchResponse,
    GenerateRequest,
    GenerateResponse,
)
from dramaturg.service import context
from dramaturg.service.context import remaining as context_remaining
from dramaturg.service.errors import ServiceError, overloaded, to_error_status
from services.generation import codec
from services.generation.calls import DeadlinePolicy, Until
from services.generation.codec import (
    DOMAIN_ERRORS,
    decode_features,
    encode_check,
    encode_ledger_status,
    encode_limits,
    service_error,
)
from services.generation.completions import CachePolicy, Completer
from services.generation.ledger import Ledger
from services.generation.provider_checks import ProviderCheck, ProviderChecker, batch_share
from services.generation.registry import Registry

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
            raise overloaded(
                f"{self._batch_requests} requests of batches are in progress; {count} more would exceed the "
                f"limit of {self._max_batch_requests}",
                self._retry_seconds,
                limit=self._max_batch_requests,
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


CHECK_SECONDS = 120.0
"""The longest that a check without a deadline takes."""
CHECK_KEPT_SECONDS = 60.0
"""How long a check of a model without a failure is kept."""
CHECK_SHARE = 0.95
"""The share of the time left that a check may take, so that its failures are reported in time."""


class GenerationServicer(pb_grpc.GenerationServiceServicer):
    def __init__(self, generator: Generator, registry: Registry, ledger: Ledger) -> None:
        self.generator = generator
        self._registry = registry
        self._ledger = ledger
        self._checker = ProviderChecker(registry)
        self._checks: dict[tuple[str, bool], asyncio.Task[pb.ProviderCheck]] = {}

    async def Generate(self, request: pb.GenerateRequest, context: Any) -> pb.GenerateResponse:
        del context
        return await self.generator.generate(request)

    def GenerateBatch(
        self, request: pb.GenerateBatchRequest, context: Any
    ) -> AsyncGenerator[pb.GenerateBatchResponse]:
        del context
        return self.generator.generate_batch(request.requests)

    async def ListModels(self, request: pb.ListModelsRequest, context: Any) -> pb.ListModelsResponse:
        del request, context
        return pb.ListModelsResponse(
            providers=[
                pb.ProviderModels(
                    provider=listed.provider,
                    models=listed.models,
                    error=listed.error,
                    limits=[encode_limits(listed.provider, status) for status in listed.limits],
                )
                for listed in await self._registry.list_models()
            ],
            default_model=self._registry.default_model,
        )

    async def GetRateLimits(self, request: pb.GetRateLimitsRequest, context: Any) -> pb.GetRateLimitsResponse:
        del request, context
        return pb.GetRateLimitsResponse(
            providers=[
                pb.ProviderLimits(provider=name, limits=[encode_limits(name, status) for status in limits])
                for name, limits in self._registry.limits()
            ]
        )

    async def model_waits(self) -> Sequence[str]:
        """The rate limits that calls wait for, as text."""
        return [
            status.sentence(name)
            for name, limits in self._registry.limits()
            for status in limits
            if status.waiting and status.next_seconds > 0
        ]

    async def CheckProvider(self, request: pb.CheckProviderRequest, context: Any) -> pb.CheckProviderResponse:
        del context
        check = (
            self._configuration(request.model)
            if request.configuration_only
            else await self._check(request.model, request.features)
        )
        return pb.CheckProviderResponse(check=check)

    async def check_model(
        self, model: str, *, configuration_only: bool = False, check_usage: bool = False
    ) -> pb.ProviderCheck:
        """Checks the connection to a model, and if asked whether it states token counts.

        Judges of one run share a model. Calls at once share a check, and a check without a failure is kept
        for ``CHECK_KEPT_SECONDS``.
        """
        if configuration_only:
            return self._configuration(model)
        key = model, check_usage
        check = self._checks.get(key)
        if check is None:
            features = (pb.PROVIDER_FEATURE_USAGE,) if check_usage else ()
            check = self._checks[key] = asyncio.create_task(self._check(model, features))
            check.add_done_callback(partial(self._keep_check, key))
        return await asyncio.shield(check)

    def _keep_check(self, key: tuple[str, bool], check: asyncio.Task[pb.ProviderCheck]) -> None:
        failed = check.cancelled() or check.exception() is not None
        if failed or any(one.status == pb.FEATURE_STATUS_FAILED for one in check.result().features):
            del self._checks[key]
        else:
            asyncio.get_running_loop().call_later(CHECK_KEPT_SECONDS, self._checks.pop, key, None)

    def _configuration(self, model: str) -> pb.ProviderCheck:
        try:
            configured, name = self._registry.resolve(model)
        except DOMAIN_ERRORS as error:
            raise service_error(error) from error
        check = ProviderCheck(
            configured.provider.name,
            name,
            address="",
            price=configured.prices.price(name),
            price_source=configured.prices.source(name),
            batch_share=batch_share(configured, name),
        )
        return encode_check(check)

    async def _check(self, model: str, features: Sequence[pb.ProviderFeature.ValueType]) -> pb.ProviderCheck:
        wanted = decode_features(features)
        deadline = Until(CHECK_SHARE * (context_remaining() or CHECK_SECONDS))
        try:
            return encode_check(await self._checker.check(model, wanted, deadline))
        except DOMAIN_ERRORS as error:
            raise service_error(error) from error

    async def GetLedgerStatus(
        self, request: pb.GetLedgerStatusRequest, context: Any
    ) -> pb.GetLedgerStatusResponse:
        del request, context
        try:
            status = await self._ledger.status()
        except DOMAIN_ERRORS as error:
            raise service_error(error) from error
        return pb.GetLedgerStatusResponse(status=encode_ledger_status(status))
