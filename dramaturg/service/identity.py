"""The identities of the contracts of a server (``identity/v1``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc

from dramaturg.api.identity.v1 import identity_service_pb2_grpc
from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest, GetIdentityResponse, Identity
from dramaturg.service.contract import Contract
from dramaturg.service.errors import invalid


class IdentityServicer(identity_service_pb2_grpc.IdentityServiceServicer):
    """Answers from memory, for the contracts given."""

    def __init__(self, contracts: Sequence[Contract]) -> None:
        self._identities = {contract.full_name: contract.identity for contract in contracts}

    async def GetIdentity(
        self, request: GetIdentityRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> GetIdentityResponse:
        """The identity behind the contract named, or behind the only one."""
        del context
        return GetIdentityResponse(identity=self._find(request.contract))

    def _find(self, name: str) -> Identity:
        known = ", ".join(sorted(self._identities)) or "none"
        if not name:
            if len(self._identities) != 1:
                raise invalid("contract", f"is required: this server's contracts are {known}")
            return next(iter(self._identities.values()))
        if name not in self._identities:
            raise invalid("contract", f"is none of this server's, which are {known}")
        return self._identities[name]
