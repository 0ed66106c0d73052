"""Assessments of all candidates of a task by each judge, by one call where they fit into one message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

import grpc

from dramaturg.api.common.v1.script_pb2 import Script
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment, GoldAnswer
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.api.judging.v1.judge_service_pb2 import (
    Criterion,
    JudgeCandidate,
    JudgeRequest,
    JudgeResponse,
)
from dramaturg.api.judging.v1.judge_service_pb2_grpc import JudgeServiceStub
from dramaturg.judge.batches import encode_candidate
from dramaturg.judge.client import request_for, result_of
from dramaturg.judge.protocols import USES_POOL, USES_REFERENCE
from dramaturg.judge.roles import JudgeRole
from dramaturg.judge.steps import ParsedCandidate
from dramaturg.judge.streams import MAX_REQUEST_BYTES, collect_responses, split_by_size
from dramaturg.service.errors import ServiceError
from gateway.evaluations.calls import Timeouts, judge_options, read_judge, record_answer
from gateway.evaluations.concurrency import gather_all
from gateway.evaluations.failures import Failure, abstain_all, of_error, too_large, unanswered
from gateway.evaluations.judge_answers import limit_answer, mark_version, states_other
from gateway.evaluations.scripts.plan import ScriptsPlan
from gateway.evaluations.scripts.verdict_normalization import (
    expected_criteria,
    normalize,
    requested_criteria,
)
from gateway.evaluations.streams import Emit
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registry import Judge
from gateway.judges.selection import JudgeAssignment

MAX_CANDIDATES = 200
"""The most candidates of one call (``judging.v1.JudgeRequest``)."""

FindGoldAnswer = Callable[[], Awaitable[GoldAnswer | None]]
"""Waits for the gold answer; None where none is wanted."""


class Assessor:
    """Has judges assess the candidates of one task.

    Args:
        plan: The evaluation.
        readings: The candidates as they were read, in order.
        directory: The identities of judges.
        timeouts: How long to wait for judges.
    """

    def __init__(
        self,
        plan: ScriptsPlan,
        readings: Sequence[ParsedCandidate],
        directory: JudgeDirectory,
        timeouts: Timeouts,
    ) -> None:
        self._plan = plan
        self._directory = directory
        self._timeouts = timeouts
        self._step_counts = {read.id: len(read.steps) for read in readings}
        self._candidates = [
            encode_candidate(candidate, read)
            for candidate, read in zip(plan.request.candidates, readings, strict=True)
        ]

    async def assess(
        self, assignment: JudgeAssignment, find_gold_answer: FindGoldAnswer, emit: Emit
    ) -> Sequence[CandidateAssessment]:
        """The assessments of all candidates by one judge, in their order.

        A judge that fails makes the criteria of the candidates concerned abstain. Each assessment is emitted
        as soon as it is known.

        Args:
            assignment: The judge.
            find_gold_answer: Waits for the gold answer; called where the judge compares.
            emit: Hands on events.
        """
        role = assignment.role
        assert isinstance(role, JudgeRole)
        identity = assignment.judge.identity.known or await self._identity(assignment.judge)
        capabilities = () if identity is None else identity.capabilities
        reference: Script | None = None
        if role.compares or USES_REFERENCE in capabilities:
            answer = await find_gold_answer()
            reference = answer.script if answer is not None and answer.script.steps else None
        expected = expected_criteria(role, identity, self._plan.role_criteria)
        request = JudgeRequest(
            task=self._plan.request.task,
            reference=reference,
            criteria=[
                Criterion(id=criterion, definition=role.definitions.get(criterion, ""))
                for criterion in requested_criteria(expected, identity)
            ],
            options=judge_options(assignment, self._plan.request),
        )
        sizes = [candidate.ByteSize() for candidate in self._candidates]
        room = max(MAX_REQUEST_BYTES - request.ByteSize(), 0)
        calls = [
            _Call(
                assignment,
                identity,
                expected,
                request,
                [self._candidates[index] for index in part],
                self._step_counts,
                emit,
            )
            for part in split_by_size(sizes, MAX_CANDIDATES, room)
        ]
        parts = await gather_all([call.assess(self._timeouts) for call in calls])
        return [one for part in parts for one in part]

    async def _identity(self, judge: Judge) -> Identity | None:
        """The identity of a judge; None where it does not answer in time."""
        try:
            async with asyncio.timeout(self._timeouts.left()):
                return await self._directory.identity(judge)
        except TimeoutError:
            return None


class _Call:
    """One call to a judge, made again for candidates that a broken stream lacks."""

    def __init__(
        self,
        assignment: JudgeAssignment,
        identity: Identity | None,
        expected: Sequence[str],
        request: JudgeRequest,
        candidates: Sequence[JudgeCandidate],
        step_counts: dict[str, int],
        emit: Emit,
    ) -> None:
        self._assignment = assignment
        self._identity = identity
        self._expected = expected
        self._request = JudgeRequest()
        self._request.CopyFrom(request)
        self._request.candidates.extend(candidates)
        self._uses_pool = identity is not None and USES_POOL in identity.capabilities
        self._step_counts = step_counts
        self._emit = emit
        self._begun = time.perf_counter()
        self._assessed: dict[str, CandidateAssessment] = {}

    async def assess(self, timeouts: Timeouts) -> Sequence[CandidateAssessment]:
        """The assessments of its candidates, in their order."""
        ids = [candidate.id for candidate in self._request.candidates]
        judge = self._assignment.judge
        left = timeouts.left()
        stub = JudgeServiceStub(judge.channel)
        ends = None if left is None else time.monotonic() + left

        def call(missing: Sequence[str]) -> grpc.aio.UnaryStreamCall[JudgeRequest, JudgeResponse]:
            request = self._request
            if len(missing) < len(ids):
                request = request_for(request, missing, keep_pool=self._uses_pool)
            return stub.Judge(request, timeout=None if ends is None else ends - time.monotonic())

        def stream() -> AsyncGenerator[tuple[str, JudgeResponse]]:
            return collect_responses(ids, call, lambda response: response.candidate_id)

        self._begun = time.perf_counter()
        failure = await read_judge(judge, stream, self._take, left=left, longest=timeouts.judge)
        for candidate_id in ids:
            if candidate_id not in self._assessed:
                self._fail(candidate_id, failure or unanswered())
        return [self._assessed[candidate_id] for candidate_id in ids]

    def _take(self, answer: tuple[str, JudgeResponse]) -> None:
        candidate_id, response = answer
        result = result_of(response)
        if isinstance(result, ServiceError):
            self._fail(candidate_id, of_error(result, self._assignment.role))
            return
        if states_other(result.provenance, self._identity):
            self._assignment.judge.identity.doubt()
        if not limit_answer(result, self._identity):
            self._fail(candidate_id, too_large())
            return
        record_answer(self._assignment.judge, None, self._begun)
        steps = self._step_counts[candidate_id]
        assessment = normalize(result, self._expected, self._identity, steps)
        mark_version(assessment.provenance, self._assignment.judge.deviation)
        self._add(candidate_id, assessment)

    def _fail(self, candidate_id: str, failure: Failure) -> None:
        judge = self._assignment.judge
        record_answer(judge, failure, self._begun)
        assessment = abstain_all(judge.name, judge.role, failure, self._expected, self._identity)
        self._add(candidate_id, assessment)

    def _add(self, candidate_id: str, assessment: Assessment) -> None:
        judge = self._assignment.judge
        assessment.provenance.registered_name = judge.name
        assessed = CandidateAssessment(
            candidate_id=candidate_id, role=judge.role.name, judge=judge.name, assessment=assessment
        )
        self._assessed[candidate_id] = assessed
        self._emit(assessment=assessed)
