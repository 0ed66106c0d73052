"""A judge of texts with scripted verdicts."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Verdict
from dramaturg.api.judging.v1 import judge_service_pb2, judge_service_pb2_grpc
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeCandidate, JudgeRequest, JudgeResponse
from dramaturg.judge.verdicts import passed, scored
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError, to_error_status
from dramaturg.testing.servers import as_ready

Judgement: TypeAlias = "Assessment | Sequence[Verdict] | ServiceError"
"""An assessment as it is sent, the verdicts of one, or an error."""
Judge: TypeAlias = "Callable[[JudgeRequest, JudgeCandidate], Judgement | Awaitable[Judgement]]"
"""Judges one candidate of a request."""


class FakeJudge(judge_service_pb2_grpc.JudgeServiceServicer):
    """Serves ``judging.v1.JudgeService`` as scripted and records every request.

    Example:
        >>> judge = FakeJudge(lambda request, candidate: [failed("fluent")], criteria=["fluent"])
        >>> async with serve(judge.contract()) as server, open_channel(server.target) as channel:
        ...     responses = [one async for one in JudgeServiceStub(channel).Judge(request)]
        >>> assert judge.requests == [request]

    Args:
        judge: Judges one candidate; a ``ServiceError`` that it returns or raises is that candidate's error.
            Default: every criterion passes, or has the highest score of its scale.
        name: The judge's name.
        version: Its version.
        criteria: The criteria that its identity lists.
        capabilities: The capabilities that its identity lists.
        delay: Seconds before each response. The candidates of a request wait side by side.

    Attributes:
        requests: The requests, in order of arrival.
    """

    def __init__(
        self,
        judge: Judge | None = None,
        *,
        name: str = "fake-judge",
        version: str = "1.0.0",
        criteria: Iterable[str] = ("fluent",),
        capabilities: Iterable[str] = (),
        delay: float = 0.0,
    ) -> None:
        self.requests: list[JudgeRequest] = []
        self._judge = judge or self._passes
        self._name = name
        self._version = version
        self._criteria = tuple(criteria)
        self._capabilities = tuple(capabilities)
        self._delay = delay

    def contract(self) -> Contract:
        """What a server serves."""
        return Contract.make(
            judge_service_pb2.DESCRIPTOR.services_by_name["JudgeService"],
            judge_service_pb2_grpc.add_JudgeServiceServicer_to_server,
            self,
            name=self._name,
            version=self._version,
            description="Judges as scripted.",
            criteria=self._criteria,
            capabilities=self._capabilities,
        )

    async def Judge(self, request: JudgeRequest, context: Any) -> AsyncIterator[JudgeResponse]:
        """Judges the candidates of a request, each as soon as its judgement is there."""
        del context
        self.requests.append(request)
        async with aclosing(as_ready(self._respond(request, one) for one in request.candidates)) as responses:
            async for response in responses:
                yield response

    async def _respond(self, request: JudgeRequest, candidate: JudgeCandidate) -> JudgeResponse:
        response = JudgeResponse(candidate_id=candidate.id)
        try:
            judgement = self._judge(request, candidate)
            if self._delay:
                await asyncio.sleep(self._delay)
            if inspect.isawaitable(judgement):
                judgement = await judgement
            if isinstance(judgement, ServiceError):
                raise judgement
        except ServiceError as error:
            response.error.CopyFrom(to_error_status(error))
            return response
        if not isinstance(judgement, Assessment):
            provenance = Provenance(name=self._name, version=self._version)
            judgement = Assessment(verdicts=judgement, provenance=provenance)
        response.assessment.CopyFrom(judgement)
        return response

    def _passes(self, request: JudgeRequest, candidate: JudgeCandidate) -> Judgement:
        del candidate
        if not request.criteria:
            return [passed(criterion, rationale="Fine.") for criterion in self._criteria]
        return [
            scored(one.id, one.scale.highest, rationale="Fine.")
            if one.HasField("scale")
            else passed(one.id, rationale="Fine.")
            for one in request.criteria
        ]
