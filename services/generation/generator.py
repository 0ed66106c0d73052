"""GenerationService.Generate, whether it is called over the network or from within the process."""

from __future__ import annotations

import time

from dramaturg.api.generation.v1.generation_service_pb2 import GenerateRequest, GenerateResponse
from services.generation import codec
from services.generation.completions import Completer
from services.generation.patience import Patience
from services.generation.statuses import DOMAIN_ERRORS, service_error


class Generator:
    """Decodes a request, asks the completer, and encodes what comes of it.

    Args:
        completer: Completes conversations.
        patience: How long a request may take.
    """

    def __init__(self, completer: Completer, patience: Patience) -> None:
        self._completer = completer
        self._patience = patience

    async def generate(self, request: GenerateRequest) -> GenerateResponse:
        """Completes a conversation.

        Raises:
            ServiceError: The request is not valid, or there is no completion.
        """
        begun = time.perf_counter()
        call, policy = codec.decode_request(request)
        try:
            completion = await self._completer.complete(call, self._patience.deadline(), policy)
        except DOMAIN_ERRORS as error:
            raise service_error(error) from error
        return GenerateResponse(completion=codec.encode_completion(completion, time.perf_counter() - begun))
