"""GenerationService: decodes, asks the completer, encodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.api.generation.v1 import generation_service_pb2_grpc as pb_grpc
from dramaturg.service.context import remaining as context_remaining
from services.generation.codec import decode_features, encode_check, encode_ledger_status, encode_limits
from services.generation.deadlines import Until
from services.generation.generator import Generator
from services.generation.ledger import Ledger
from services.generation.provider_checks import ProviderCheck, ProviderChecker, batch_share
from services.generation.registry import Registry
from services.generation.statuses import DOMAIN_ERRORS, service_error

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

    async def GenerateBatch(
        self, request: pb.GenerateBatchRequest, context: Any
    ) -> AsyncGenerator[pb.GenerateBatchResponse]:
        del context
        async with aclosing(self.generator.generate_batch(request.requests)) as responses:
            async for response in responses:
                yield response

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
