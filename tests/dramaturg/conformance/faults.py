"""Judges of texts with one fault each, and the one check that finds it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import grpc

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.error_reason_pb2 import ERROR_REASON_INTERNAL, ERROR_REASON_UNSPECIFIED
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeRequest, JudgeResponse
from dramaturg.judge.protocols import ANY_CRITERION, CONTEXT, CONVERSATION, IMAGES, TOOL_CALLS
from dramaturg.judge.verdicts import abstained, failed, finding, passed, scored
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError
from dramaturg.testing import FakeJudge

CRITERIA = ("satisfies_constraints", "polite")
UNITS = (ANY_CRITERION, CONVERSATION, TOOL_CALLS)
"""The capabilities of a judge whose verdicts on each turn and call are checked."""
BUSY_ABOVE = 60
"""The calls at once above which a judge refuses in bad form; more than other checks make."""

Before = Callable[[JudgeRequest], Awaitable[None]]
After = Callable[[JudgeRequest, JudgeResponse], None]


class FaultyJudge(FakeJudge):
    """A sound judge, except for what is done to its requests and responses."""

    def __init__(self, before: Before | None = None, after: After | None = None, **fields: Any) -> None:
        super().__init__(**{"criteria": CRITERIA, **fields})
        self._before, self._after = before, after

    async def Judge(self, request: JudgeRequest, context: Any) -> AsyncIterator[JudgeResponse]:
        if self._before is not None:
            await self._before(request)
        async for response in super().Judge(request, context):
            if self._after is not None:
                self._after(request, response)
            yield response


@dataclass(frozen=True)
class Fault:
    """A judge with a fault."""

    check: str
    """The only check that fails."""
    message: str
    """A part of the failure."""
    make: Callable[[], Contract]

    def __str__(self) -> str:
        return self.check


def _changed(after: After, **fields: Any) -> Callable[[], Contract]:
    return lambda: FaultyJudge(None, after, **fields).contract()


def _before(before: Callable[[JudgeRequest], None], **fields: Any) -> Callable[[], Contract]:
    async def run(request: JudgeRequest) -> None:
        before(request)

    return lambda: FaultyJudge(run, **fields).contract()


def _not_serving() -> Contract:
    contract = FaultyJudge().contract()
    contract.health.serving = False
    return contract


def _unread(_: JudgeRequest, response: JudgeResponse) -> None:
    if response.assessment.reading == verdict_pb2.READING_STEPS:
        response.assessment.ClearField("reading")


def _unread_prose(_: JudgeRequest, response: JudgeResponse) -> None:
    if response.assessment.reading == verdict_pb2.READING_TEXT:
        response.assessment.reading = verdict_pb2.READING_EMPTY


def _own_order(request: JudgeRequest, response: JudgeResponse) -> None:
    if len(request.criteria) > 1:
        verdicts = sorted(response.assessment.verdicts, key=lambda one: CRITERIA.index(one.criterion))
        del response.assessment.verdicts[:]
        response.assessment.verdicts.extend(verdicts)


def _drop_unknown(request: JudgeRequest) -> None:
    known = [one for one in request.criteria if one.id in CRITERIA]
    del request.criteria[:]
    request.criteria.extend(known)


def _rename_repeated(request: JudgeRequest) -> None:
    seen: set[str] = set()
    for index, one in enumerate(request.candidates):
        if one.id in seen:
            one.id = f"{one.id}-{index}"
        seen.add(one.id)


def _off_the_scale(request: JudgeRequest, response: JudgeResponse) -> None:
    for place, one in enumerate(request.criteria):
        if one.HasField("scale"):
            response.assessment.verdicts[place].CopyFrom(scored(one.id, one.scale.highest + 1))


def _lost_unit(_: JudgeRequest, response: JudgeResponse) -> None:
    for verdict in response.assessment.verdicts:
        del verdict.units[2:3]


def _absent_turn(_: JudgeRequest, response: JudgeResponse) -> None:
    for verdict in response.assessment.verdicts:
        for one in verdict.units[-1:]:
            one.turn_index += 1


def _overlooked_fault(_: JudgeRequest, response: JudgeResponse) -> None:
    for verdict in response.assessment.verdicts:
        for one in verdict.units[-1:]:
            one.outcome = verdict_pb2.OUTCOME_FAIL


def _unexplained_unit(_: JudgeRequest, response: JudgeResponse) -> None:
    for verdict in response.assessment.verdicts:
        for one in verdict.units[-1:]:
            one.outcome = verdict.outcome = verdict_pb2.OUTCOME_ABSTAIN
            verdict.abstain_reason = verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE


def _shared_steps(request: JudgeRequest, response: JudgeResponse) -> None:
    if len(request.candidates) == 5:
        found = finding(verdict_pb2.FINDING_KIND_REDUNDANT_STEP, "Idle.", steps=[4])
        response.assessment.verdicts[1].CopyFrom(failed("polite", [found]))


def _call_for_nothing(_: JudgeRequest, response: JudgeResponse) -> None:
    if response.assessment.reading == verdict_pb2.READING_EMPTY:
        response.assessment.provenance.completions.add()


def _invent(request: JudgeRequest, response: JudgeResponse) -> None:
    if not request.task.constraints and response.assessment.reading == verdict_pb2.READING_STEPS:
        response.assessment.verdicts[0].CopyFrom(passed("satisfies_constraints"))


def _infect(request: JudgeRequest, response: JudgeResponse) -> None:
    contents = [bool(one.text or one.script.steps) for one in request.candidates]
    if any(contents) and not all(contents):
        reason = verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE
        for verdict in response.assessment.verdicts:
            verdict.CopyFrom(abstained(verdict.criterion, reason, "Gone."))


def _judge_pool(request: JudgeRequest) -> None:
    request.candidates.extend(request.pool)
    del request.pool[:]


def _favour(_: JudgeRequest, response: JudgeResponse) -> None:
    if response.candidate_id.startswith("written"):
        response.assessment.verdicts[1].CopyFrom(failed("polite"))


def _sign_wrongly(_: JudgeRequest, response: JudgeResponse) -> None:
    response.assessment.provenance.version = "9.9.9"


def _be_paid(_: JudgeRequest, response: JudgeResponse) -> None:
    if response.assessment.reading != verdict_pb2.READING_EMPTY:
        response.assessment.provenance.completions.add()
        response.assessment.provenance.usage.cost_usd = -5.0


def _refuse(condition: Callable[[JudgeRequest], bool]) -> Callable[[JudgeRequest], None]:
    def before(request: JudgeRequest) -> None:
        if condition(request):
            raise ServiceError(grpc.StatusCode.INTERNAL, ERROR_REASON_INTERNAL, "cannot")

    return before


def _has_high_plane(request: JudgeRequest) -> bool:
    return any(letter > "\U00100000" for one in request.candidates for letter in str(one.script.steps[-1:]))


def _has_image(request: JudgeRequest) -> bool:
    turns = [turn for one in request.candidates for turn in one.conversation.turns]
    return any(part.HasField("image") for turn in turns for part in turn.parts)


def _talk(request: JudgeRequest, response: JudgeResponse) -> None:
    if len(request.candidates) == 40:
        response.assessment.verdicts[1].rationale = "So. " * 70_000


def _mixed() -> Contract:
    latest = JudgeRequest()

    async def before(request: JudgeRequest) -> None:
        latest.CopyFrom(request)
        await asyncio.sleep(0.05)
        if len(request.candidates) == 1:
            request.candidates[0].id = latest.candidates[0].id if latest.candidates else "none"

    return FaultyJudge(before).contract()


class ImpatientJudge(FaultyJudge):
    """Fails in place of a call whose deadline is near."""

    async def Judge(self, request: JudgeRequest, context: Any) -> AsyncIterator[JudgeResponse]:
        if context.time_remaining() < 1:
            raise ServiceError(grpc.StatusCode.INTERNAL, ERROR_REASON_INTERNAL, "no time")
        async for response in super().Judge(request, context):
            yield response


class BluntLimit:
    """Refuses calls above ``BUSY_ABOVE`` at once, without a reason."""

    def __init__(self) -> None:
        self._calls = 0
        self._arrived = 0

    @asynccontextmanager
    async def call(self) -> AsyncIterator[None]:
        """Counts a call, which lasts until no other one arrives: a slow burst is at once too."""
        self._calls += 1
        self._arrived += 1
        try:
            if self._calls > BUSY_ABOVE:
                raise ServiceError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED, ERROR_REASON_UNSPECIFIED, "limit exceeded"
                )
            seen = 0
            while seen < self._arrived:
                seen = self._arrived
                await asyncio.sleep(0.05)
            yield
        finally:
            self._calls -= 1


def _bluntly_busy() -> Contract:
    limit = BluntLimit()

    async def before(_: JudgeRequest) -> None:
        async with limit.call():
            pass

    return FaultyJudge(before).contract()


def _leaky() -> Contract:
    broken = False

    async def before(request: JudgeRequest) -> None:
        nonlocal broken
        if broken:
            raise ServiceError(grpc.StatusCode.INTERNAL, ERROR_REASON_INTERNAL, "stuck")
        if any("Stir the tea. Stir" in str(one.script.steps[:1]) for one in request.candidates):
            with suppress(TimeoutError):
                try:
                    await asyncio.sleep(0.6)
                except asyncio.CancelledError:
                    broken = True
                    raise

    return FaultyJudge(before).contract()


FAULTS: Sequence[Fault] = (
    Fault("health", "is NOT_SERVING", _not_serving),
    Fault("says-who-it-is", "'Fake Judge'", lambda: FaultyJudge(name="Fake Judge").contract()),
    Fault("judges-every-criterion", "READING_UNSPECIFIED", _changed(_unread)),
    Fault("judges-the-criteria-asked-for", "judged", _changed(_own_order)),
    Fault(
        "keeps-to-scales", "6.0 is not from 1 to 5", _changed(_off_the_scale, capabilities=(ANY_CRITERION,))
    ),
    Fault(
        "judges-each-unit",
        "judges Turn 2, Turn 5, Turn 9, not Turn 2, Turn 5, Turn 7, Turn 9",
        _changed(_lost_unit, capabilities=UNITS),
    ),
    Fault("judges-each-unit", "Turn 10", _changed(_absent_turn, capabilities=UNITS)),
    Fault(
        "judges-each-unit",
        "is OUTCOME_PASS, but OUTCOME_FAIL by its units",
        _changed(_overlooked_fault, capabilities=UNITS),
    ),
    Fault(
        "judges-each-unit",
        "has OUTCOME_ABSTAIN (ABSTAIN_REASON_UNSPECIFIED) for Turn 9",
        _changed(_unexplained_unit, capabilities=UNITS),
    ),
    Fault(
        "takes-what-it-says",
        "INTERNAL: cannot",
        _before(_refuse(_has_image), capabilities=(*UNITS, CONTEXT, IMAGES)),
    ),
    Fault("refuses-unknown-criteria", "the request was answered", _before(_drop_unknown)),
    Fault("answers-each-candidate", "must ascend and be below", _changed(_shared_steps)),
    Fault("defines-the-empty-candidate", "a model was called", _changed(_call_for_nothing)),
    Fault("judges-prose", "READING_EMPTY", _changed(_unread_prose)),
    Fault("does-not-invent-constraints", "OUTCOME_PASS", _changed(_invent)),
    Fault("keeps-candidates-apart", "beside odd ones", _changed(_infect)),
    Fault("leaves-the-pool-alone", "were answered by", _before(_judge_pool)),
    Fault("is-blind-to-the-id", "with another id", _changed(_favour)),
    Fault("says-where-answers-come-from", "'9.9.9'", _changed(_sign_wrongly)),
    Fault("reports-possible-usage", "usage.cost_usd is -5.0", _changed(_be_paid)),
    Fault("bears-every-plane", "INTERNAL: cannot", _before(_refuse(_has_high_plane))),
    Fault(
        "answers-the-largest-input",
        "INTERNAL: cannot",
        _before(_refuse(lambda request: any(len(one.text) > 100_000 for one in request.candidates))),
    ),
    Fault("keeps-answers-small", "at most 262144 are read", _changed(_talk)),
    Fault("refuses-bad-requests", "the request was answered", _before(_rename_repeated)),
    Fault("keeps-to-deadlines", "seconds fails with INTERNAL", lambda: ImpatientJudge().contract()),
    Fault("keeps-calls-apart", "were answered by", _mixed),
    Fault("sheds-load", "RESOURCE_EXHAUSTED without an ErrorInfo", _bluntly_busy),
    Fault("survives-cancellation", "INTERNAL: stuck", _leaky),
)
"""A fault for each check, except of the drain: ``test_processes`` has its faults, which processes have."""
