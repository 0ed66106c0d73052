"""The client that other teams use: evaluates scripts through a gateway."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Self

import grpc

from dramaturg.api.evaluation.v1.evaluation_service_pb2 import EvaluateScriptsRequest, EvaluateScriptsResponse
from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceStub
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    CheckJudgeRequest,
    Judge,
    ListJudgesRequest,
)
from dramaturg.api.evaluation.v1.judge_directory_service_pb2_grpc import JudgeDirectoryServiceStub
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import ServiceError, from_rpc_error
from dramaturg.service.settings import ChannelSettings

__all__ = ["DramaturgClient", "ServiceError"]


class DramaturgClient:
    """A connection to a gateway.

    Every method raises ``ServiceError``, with the reason and, for a request that breaks limits, every
    violation. It belongs to the event loop that it is first used in.

    Example:
        >>> async with DramaturgClient("localhost:50051") as client:
        ...     async for event in client.evaluate_scripts(request):
        ...         if event.WhichOneof("event") == "result":
        ...             for candidate in event.result.candidates:
        ...                 print(candidate.candidate_id, [verdict.outcome for verdict in candidate.verdicts])

    Args:
        target: The gateway's address, such as "gateway.example:50051".
        settings: TLS files and limits; by default those of the environment (``DRAMATURG_CHANNEL_TLS_CA_FILE``
            and so on).
    """

    def __init__(self, target: str, settings: ChannelSettings | None = None) -> None:
        self._channel = open_channel(target, settings)
        self._evaluations = EvaluationServiceStub(self._channel)
        self._judges = JudgeDirectoryServiceStub(self._channel)

    async def evaluate_scripts(
        self, request: EvaluateScriptsRequest, *, timeout: float | None = None
    ) -> AsyncGenerator[EvaluateScriptsResponse]:
        """Evaluates the scripts of one task; yields each event as it comes, the result last.

        Leaving the loop early and closing the generator cancels the evaluation, and with it the judges'
        calls.

        Args:
            request: The task and its candidates.
            timeout: Seconds for the whole evaluation; by default the channel's longest.

        Raises:
            ServiceError: The request was refused, or the gateway failed.
        """
        call = self._evaluations.EvaluateScripts(request, timeout=timeout)
        try:
            async for event in call:
                yield event
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        finally:
            call.cancel()

    async def list_judges(self, role: str = "", *, timeout: float | None = None) -> Sequence[Judge]:
        """Lists the registered judges of a role, or of all, each with its health.

        Raises:
            ServiceError: The gateway failed.
        """
        try:
            response = await self._judges.ListJudges(ListJudgesRequest(role=role), timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        return response.judges

    async def check_judge(self, role: str, judge: str, *, timeout: float | None = None) -> Judge:
        """Asks one judge for its identity and health.

        Raises:
            ServiceError: It is not registered (ERROR_REASON_JUDGE_UNKNOWN), or the gateway failed.
        """
        try:
            response = await self._judges.CheckJudge(
                CheckJudgeRequest(role=role, judge=judge), timeout=timeout
            )
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        return response.judge

    async def close(self) -> None:
        """Closes the connection; calls under way are cancelled."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
