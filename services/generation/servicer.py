"""GenerationService: decodes, asks the completer, encodes."""

from __future__ import annotations

from typing import Any

from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.api.generation.v1 import generation_service_pb2_grpc as pb_grpc
from services.generation.codec import decode_request, domain_errors, encode_completion, encode_ledger_status
from services.generation.completions import Completer
from services.generation.ledger import Ledger
from services.generation.patience import Patience
from services.generation.registry import Registry


class GenerationServicer(pb_grpc.GenerationServiceServicer):
    """Serves the models of the configured providers."""

    def __init__(self, completer: Completer, registry: Registry, patience: Patience, ledger: Ledger) -> None:
        self._completer = completer
        self._registry = registry
        self._patience = patience
        self._ledger = ledger

    async def Generate(self, request: pb.GenerateRequest, context: Any) -> pb.GenerateResponse:
        """Completes a conversation."""
        del context
        call, policy = decode_request(request)
        with domain_errors():
            completion = await self._completer.complete(call, self._patience.deadline(), policy)
        return pb.GenerateResponse(completion=encode_completion(completion))

    async def ListModels(self, request: pb.ListModelsRequest, context: Any) -> pb.ListModelsResponse:
        """Lists the models of every provider."""
        del request, context
        return pb.ListModelsResponse(
            providers=[
                pb.ProviderModels(provider=listed.provider, models=listed.models, error=listed.error)
                for listed in await self._registry.list_models()
            ],
            default_model=self._registry.default_model,
        )

    async def GetLedgerStatus(
        self, request: pb.GetLedgerStatusRequest, context: Any
    ) -> pb.GetLedgerStatusResponse:
        """Tells what the ledger holds."""
        del request, context
        with domain_errors():
            status = await self._ledger.status()
        return pb.GetLedgerStatusResponse(status=encode_ledger_status(status))
