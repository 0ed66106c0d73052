"""Assessments of all candidates of a task by each judge, by one call where they fit into one message."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import grpc

from dramaturg.api.common.v1.script_pb2 import Script, Task
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.api.judging.v1.judge_service_pb2 import (
    Criterion,
    CriterionScale,
    CriterionUnit,
    JudgeCandidate,
    JudgeRequest,
    JudgeResponse,
)
from dramaturg.api.judging.v1.judge_service_pb2_grpc import JudgeServiceStub
from dramaturg.judge.client import request_for, result_of
from dramaturg.judge.conversations import kinds_of_parts, turn_texts, units_of
from dramaturg.judge.protocols import CONTEXT, CONVERSATION, IMAGES, TOOL_CALLS, USES_POOL
from dramaturg.judge.quotes import Sources
from dramaturg.judge.roles import JudgeRole
from dramaturg.judge.streams import MAX_REQUEST_BYTES, collect_responses, split_by_size
from dramaturg.service.errors import ServiceError
from dramaturg.service.threads import gather_all
from gateway.evaluations.calls import Request, judge_options, read_judge, record_answer
from gateway.evaluations.failures import (
    Failure,
    abstain_all,
    not_shown,
    of_error,
    too_large,
    unanswered,
    unsupported,
)
from gateway.evaluations.judge_answers import limit_answer, mark_version, states_other
from gateway.evaluations.panels import stands
from gateway.evaluations.repeats import combine_assessments, repeat_count, repeated
from gateway.evaluations.scope import EvaluationScope, waits_for_batch
from gateway.evaluations.streams import Emit
from gateway.evaluations.verdict_normalization import breach_of, check_quotes, normalize
from gateway.judges.directory import JudgeDirectory
from gateway.judges.registry import Judge
from gateway.judges.selection import JudgeAssignment

_PARTS = {
    "tool_call": (TOOL_CALLS, "calls of tools"),
    "tool_result": (TOOL_CALLS, "calls of tools"),
    "image": (IMAGES, "images"),
}
"""The capability that a kind of part of a conversation needs, and the part as text."""
MAX_CANDIDATES = 200
"""The most candidates of one call (``judging.v1.JudgeRequest``)."""


@dataclass(frozen=True)
class AskedCriteria:
    """The criteria of one judge."""

    expected: Sequence[str]
    """The criteria that it answers for, in the order of its verdicts."""
    requested: Sequence[Criterion] | None
    """The criteria that the request names. Empty: all of the judge. None: it judges none of them."""
    scales: Mapping[str, CriterionScale] = field(default_factory=dict)
    """The scales of the criteria that are scored."""
    units: Mapping[str, CriterionUnit.ValueType] = field(default_factory=dict)
    """What of a conversation criteria judge one by one."""


Ask = Callable[[JudgeRole, Identity | None], AskedCriteria]
"""The criteria of a judge of a role, by its identity where that is known."""


class ReferencePendingError(Exception):
    """The reference is not there yet. A judge that compares with it is asked when it is there."""


FindReference = Callable[[JudgeRole, Identity | None], Awaitable[Script | None]]
"""Waits for the reference of a judge; None where it gets none. Raises ReferencePendingError."""


Assessed = Sequence[tuple[JudgeAssignment, CandidateAssessment]]
"""The assessments of one candidate with their judges, in the order of the judges."""


class Assessor:
    """Has judges assess the candidates of one task.

    Args:
        task: The task.
        candidates: The candidates, with the steps as they were read.
        request: Has the options of the judges.
        directory: The identities of judges.
    """

    def __init__(
        self,
        task: Task,
        candidates: Sequence[JudgeCandidate],
        request: Request,
        directory: JudgeDirectory,
    ) -> None:
        self._task = task
        self._candidates = candidates
        self._request = request
        self._directory = directory

    async def assess_all(
        self,
        assignments: Sequence[JudgeAssignment],
        scope: EvaluationScope,
        ask: Ask,
        find_reference: FindReference,
        emit: Emit,
    ) -> Mapping[str, Assessed]:
        """The assessments of each candidate by all judges; see ``assess``.

        Judges are asked at once. A later stage of a cascade is asked after the one before, for the candidates
        that have a criterion without a verdict that stands.
        """
        stages: defaultdict[object, list[int]] = defaultdict(list)
        for place, one in enumerate(assignments):
            stages[one.panel if one.cascades else place].append(place)
        found: dict[tuple[str, int], CandidateAssessment] = {}

        async def ask_stages(places: Sequence[int]) -> None:
            pending: dict[str, set[str] | None] = {one.id: None for one in self._candidates}
            for place in places:
                judge = assignments[place]
                assessed = await self.assess(judge, scope, ask, find_reference, emit, only=pending)
                found.update({(one.candidate_id, place): one for one in assessed})
                if place == places[-1]:
                    break
                for one in assessed:
                    verdicts = one.assessment.verdicts
                    left = {each.criterion for each in verdicts if not stands(each, judge.threshold)}
                    before = pending.pop(one.candidate_id)
                    if waits_for_batch(one.assessment):
                        continue
                    if left := left if before is None else before & left:
                        pending[one.candidate_id] = left
                if not pending:
                    break

        await gather_all([ask_stages(places) for places in stages.values()])
        return {
            one.id: [
                (judge, found[one.id, place])
                for place, judge in enumerate(assignments)
                if (one.id, place) in found
            ]
            for one in self._candidates
        }

    async def assess(
        self,
        assignment: JudgeAssignment,
        scope: EvaluationScope,
        ask: Ask,
        find_reference: FindReference,
        emit: Emit,
        *,
        only: Collection[str] | None = None,
    ) -> Sequence[CandidateAssessment]:
        """The assessments of candidates by one judge, in their order.

        A judge that fails makes the criteria of the candidates concerned abstain. Each assessment is emitted
        as soon as it is known.

        Args:
            assignment: The judge.
            scope: What its calls share with those of the evaluation, or of a shadow.
            ask: The criteria of the judge.
            find_reference: Waits for the reference.
            emit: Hands on events.
            only: The ids of the candidates. None: all.
        """
        candidates = [one for one in self._candidates if only is None or one.id in only]
        role = assignment.role
        assert isinstance(role, JudgeRole)
        identity = assignment.judge.identity.known or await self._identity(assignment.judge, scope)
        asked = ask(role, identity)
        try:
            reference = await find_reference(role, identity)
        except ReferencePendingError:
            asked, reference = replace(asked, requested=None), None  # it is not asked
        options = self._request.options

        async def once(one: JudgeAssignment, emit: Emit) -> Sequence[CandidateAssessment]:
            request = JudgeRequest(
                task=self._task,
                reference=reference,
                criteria=asked.requested,
                options=judge_options(one, self._request),
            )
            return await self._ask(one, scope, identity, asked, request, candidates, emit)

        if repeat_count(role, options) == 1:
            return await once(assignment, emit)
        assessed = await repeated(
            assignment,
            options,
            lambda one: once(one, lambda **_: None),
            lambda answers: [combine_assessments(one, asked.scales) for one in zip(*answers, strict=True)],
        )
        for one in assessed:
            emit(assessment=one)
        return assessed

    async def _ask(
        self,
        assignment: JudgeAssignment,
        scope: EvaluationScope,
        identity: Identity | None,
        asked: AskedCriteria,
        request: JudgeRequest,
        candidates: Sequence[JudgeCandidate],
        emit: Emit,
    ) -> Sequence[CandidateAssessment]:
        """The assessments of candidates by one answer of a judge."""
        withheld = self._withheld(identity)
        shown = [one for one in candidates if one.id not in withheld]
        room = max(MAX_REQUEST_BYTES - request.ByteSize(), 0)
        parts = [
            [shown[index] for index in part]
            for part in split_by_size([one.ByteSize() for one in shown], MAX_CANDIDATES, room)
        ]
        if withheld:
            parts.append([one for one in candidates if one.id in withheld])
        calls = [
            _Call(
                assignment,
                scope,
                identity,
                partial(self._identity, assignment.judge, scope),
                asked,
                request,
                part,
                emit,
                withheld,
            )
            for part in parts
            if part
        ]
        assessed = [one for part in await gather_all([call.assess() for call in calls]) for one in part]
        by_id = {one.candidate_id: one for one in assessed}
        return [by_id[one.id] for one in candidates]

    def _withheld(self, identity: Identity | None) -> Mapping[str, Failure]:
        """The candidates with parts that a judge does not take: it is not asked about them."""
        if identity is None:
            return {}
        withheld: dict[str, Failure] = {}
        task = self._task
        shared = "context" if task.context else "instructions of the system under test"
        for one in self._candidates:
            needed = {}
            if task.context or task.instructions:
                needed[CONTEXT] = shared
            elif one.context:
                needed[CONTEXT] = "context"
            if one.HasField("conversation"):
                needed[CONVERSATION] = "conversations"
                kinds = kinds_of_parts(one.conversation)
                needed |= {name: part for kind, (name, part) in _PARTS.items() if kind in kinds}
            for capability, part in needed.items():
                if capability not in identity.capabilities:
                    withheld.setdefault(one.id, not_shown(part, capability))
        return withheld

    async def _identity(self, judge: Judge, scope: EvaluationScope) -> Identity | None:
        """The identity of a judge; None where it does not answer in time."""
        try:
            async with asyncio.timeout(scope.left()):
                return await self._directory.identity(judge)
        except TimeoutError:
            return None


class _Call:
    """One call to a judge, made again for candidates that a broken stream lacks."""

    def __init__(
        self,
        assignment: JudgeAssignment,
        scope: EvaluationScope,
        identity: Identity | None,
        find_identity: Callable[[], Awaitable[Identity | None]],
        asked: AskedCriteria,
        request: JudgeRequest,
        candidates: Sequence[JudgeCandidate],
        emit: Emit,
        withheld: Mapping[str, Failure],
    ) -> None:
        self._assignment = assignment
        self._withheld = withheld
        self._scope = scope
        self._identity = identity
        self._find_identity = find_identity
        self._asked = asked
        self._request = JudgeRequest()
        self._request.CopyFrom(request)
        self._request.candidates.extend(candidates)
        self._uses_pool = identity is not None and USES_POOL in identity.capabilities
        self._step_counts = {
            one.id: len(one.script.steps) or len(one.conversation.turns) for one in candidates
        }
        self._units = {
            one.id: {name: units_of(one.conversation, unit) for name, unit in asked.units.items()}
            for one in candidates
        }
        self._emit = emit
        self._begun = time.perf_counter()
        self._assessed: dict[str, CandidateAssessment] = {}
        self._doubtful: dict[str, Assessment] = {}
        """The assessments that state another name or version than the identity."""

    async def assess(self) -> Sequence[CandidateAssessment]:
        """The assessments of its candidates, in their order."""
        ids = [candidate.id for candidate in self._request.candidates]
        if self._asked.requested is None or ids[0] in self._withheld:
            for candidate_id in ids:
                self._abstain(candidate_id, self._withheld.get(candidate_id, unsupported()))
            return [self._assessed[candidate_id] for candidate_id in ids]
        judge = self._assignment.judge
        scope = self._scope
        left = scope.left()
        stub = JudgeServiceStub(judge.channel)
        ends = None if left is None else time.monotonic() + left

        def call(missing: Sequence[str]) -> grpc.aio.UnaryStreamCall[JudgeRequest, JudgeResponse]:
            request = self._request
            if len(missing) < len(ids):
                request = request_for(request, missing, keep_pool=self._uses_pool)
            return stub.Judge(request, timeout=None if ends is None else ends - time.monotonic())

        def stream() -> AsyncGenerator[tuple[str, JudgeResponse]]:
            known = {*self._assessed, *self._doubtful}
            missing = [candidate_id for candidate_id in ids if candidate_id not in known]
            return collect_responses(missing, call, lambda response: response.candidate_id)

        self._begun = time.perf_counter()
        failure = await read_judge(scope, judge, stream, self._take, left=left, longest=scope.timeouts.judge)
        if self._doubtful:
            await self._settle()
        for candidate_id in ids:
            if candidate_id not in self._assessed:
                if failure is None:
                    judge.quarantine.record("it did not answer for a candidate", scope.tenant)
                self._fail(candidate_id, failure or unanswered())
        return [self._assessed[candidate_id] for candidate_id in ids]

    def _take(self, answer: tuple[str, JudgeResponse]) -> None:
        candidate_id, response = answer
        result = result_of(response)
        if isinstance(result, ServiceError):
            self._fail(candidate_id, of_error(result, self._assignment.role))
            return
        is_doubtful = states_other(result.provenance, self._identity)
        if is_doubtful:
            self._assignment.judge.identity.doubt()
        if not limit_answer(result, None if is_doubtful else self._identity):
            self._assignment.judge.quarantine.record("its answer is too large", self._scope.tenant)
            self._fail(candidate_id, too_large())
        elif is_doubtful:
            self._doubtful[candidate_id] = result
        else:
            self._receive(candidate_id, result, self._identity)

    async def _settle(self) -> None:
        """Takes the doubtful assessments: those of a judge that has changed have its present identity."""
        present = await self._find_identity()
        for candidate_id, result in self._doubtful.items():
            changed = present is not None and not states_other(result.provenance, present)
            identity = present if changed else self._identity
            limit_answer(result, identity)
            self._receive(candidate_id, result, identity)

    def _receive(self, candidate_id: str, result: Assessment, identity: Identity | None) -> None:
        record_answer(self._scope, self._assignment.judge, None, self._begun)
        steps = self._step_counts[candidate_id]
        asked = self._asked
        units = self._units[candidate_id]
        assessment = normalize(result, asked.expected, identity, steps, asked.scales, units)
        check_quotes(assessment, self._sources(candidate_id))
        self._assignment.judge.quarantine.record(breach_of(result, assessment), self._scope.tenant)
        mark_version(assessment.provenance, self._assignment.judge.deviation)
        self._add(candidate_id, assessment)

    def _sources(self, candidate_id: str) -> Callable[[], Sources]:
        """The texts that quotes about a candidate may be from."""
        request = self._request

        def sources() -> Sources:
            candidate = next(one for one in request.candidates if one.id == candidate_id)
            steps = (step.text for step in candidate.script.steps)
            reference = "\n".join(step.text for step in request.reference.steps)
            texts = turn_texts(candidate.conversation) or [candidate.text or "\n".join(steps)]
            return Sources(request.task, texts, candidate.context, reference)

        return sources

    def _fail(self, candidate_id: str, failure: Failure) -> None:
        # The verdict of a panel tells whether the failure of a member leaves a gap.
        noted = self._assignment.panel is None
        record_answer(self._scope, self._assignment.judge, failure, self._begun, noted=noted)
        self._abstain(candidate_id, failure)

    def _abstain(self, candidate_id: str, failure: Failure) -> None:
        judge = self._assignment.judge
        assessment = abstain_all(judge.name, judge.role, failure, self._asked.expected, self._identity)
        self._add(candidate_id, assessment)

    def _add(self, candidate_id: str, assessment: Assessment) -> None:
        judge = self._assignment.judge
        assessment.provenance.registered_name = judge.name
        panel = self._assignment.panel
        assessed = CandidateAssessment(
            candidate_id=candidate_id,
            role=judge.role.name,
            judge=judge.name,
            assessment=assessment,
            panel="" if panel is None else panel.name,
        )
        assessed.latency.FromNanoseconds(round((time.perf_counter() - self._begun) * 1e9))
        self._assessed[candidate_id] = assessed
        self._emit(assessment=assessed)
