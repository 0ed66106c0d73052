"""The identities of the contracts of a server (``identity/v1``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc

from dramaturg.api.identity.v1 import identity_service_pb2_grpc
from dramaturg.api.identity.v1.identity_service_pb2 import (
    CheckModelRequest,
    CheckModelResponse,
    GetIdentityRequest,
    GetIdentityResponse,
    ListModelWaitsRequest,
    ListModelWaitsResponse,
)
from dramaturg.service.contract import Contract
from dramaturg.service.errors import invalid


class IdentityServicer(identity_service_pb2_grpc.IdentityServiceServicer):
    """Answers for the contracts given."""

    def __init__(self, contracts: Sequence[Contract]) -> None:
        self._contracts = {contract.full_name: contract for contract in contracts}

    async def GetIdentity(
        self, request: GetIdentityRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> GetIdentityResponse:
        """The identity behind the contract named, or behind the only one."""
        del context
        return GetIdentityResponse(identity=self._find(request.contract).identity)

    async def CheckModel(
        self, request: CheckModelRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> CheckModelResponse:
        """Checks the model of the contract named, or of the only one."""
        del context
        models = self._find(request.contract).models
        if models is None:
            return CheckModelResponse()
        check = await models.check_model(
            request.model,
            configuration_only=request.configuration_only,
            check_usage=request.check_usage,
        )
        return CheckModelResponse(check=check)

    async def ListModelWaits(
        self, request: ListModelWaitsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> ListModelWaitsResponse:
        """The waits of the contract named, or of the only one."""
        del context
        models = self._find(request.contract).models
        return ListModelWaitsResponse(waits=() if models is None else await models.model_waits())

    def _find(self, name: str) -> Contract:
        known = ", ".join(sorted(self._contracts)) or "none"
        if not name:
            if len(self._contracts) != 1:
                raise invalid("contract", f"is required: this server's contracts are {known}")
            return next(iter(self._contracts.values()))
        if name not in self._contracts:
            raise invalid("contract", f"is none of this server's, which are {known}")
        return self._contracts[name]
